"""What holds for every test."""

from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is; speed is measured by the benches.
settings.register_profile("coresteer", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("coresteer")
