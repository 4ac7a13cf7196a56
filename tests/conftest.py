"""What holds for every test."""

from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is; speed is measured by the benches. Fewer examples than
# hypothesis' own hundred keep all of CI well under its 25 minutes.
settings.register_profile("coresteer", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("coresteer")
