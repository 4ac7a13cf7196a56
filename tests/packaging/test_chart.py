"""The Helm chart: its versions, and what it renders, against the schemas of Kubernetes."""

import os
import subprocess
from importlib import metadata
from typing import Any  # manifests are YAML of any shape
from urllib.parse import urlsplit

import kubernetes_validate
import pytest
import yaml

from coresteer.config import REPOSITORY, Config

CHART = REPOSITORY / "packaging/helm/coresteer"
HELM = os.environ.get("HELM")
needs_helm = pytest.mark.skipif(HELM is None, reason="HELM is not the path of helm's program")
KUBERNETES = "1.33.0"


def rendered(*values: str) -> list[dict[str, Any]]:
    assert HELM is not None
    options = [word for value in values for word in ("--set", value)]
    argv = [HELM, "template", "one", str(CHART), "--namespace", "tools", "--kube-version", KUBERNETES, *options]
    return list(yaml.safe_load_all(subprocess.run(argv, check=True, capture_output=True, text=True).stdout))


def of_kind(manifests: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = [each for each in manifests if each["kind"] == kind]
    return found


def test_the_chart_has_the_version_of_the_packages() -> None:
    version = metadata.version("coresteer")
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert {chart["version"], chart["appVersion"]} == {version}
    assert {values[part]["image"].rpartition(":")[2] for part in ("backend", "agent")} == {version}


@needs_helm
def test_helm_finds_nothing_to_object_to() -> None:
    assert HELM is not None
    subprocess.run([HELM, "lint", "--strict", CHART], check=True)


@needs_helm
@pytest.mark.parametrize(
    "values",
    [
        (),
        ("agent.mode=control", "agent.labels.role=db"),
        ("backend.replicas=3", "nats.secret=coresteer-nats", "backend.privateCa=false"),
        ("serviceMonitor.enabled=true",),
    ],
)
def test_what_it_renders_follows_the_schemas_of_kubernetes(values: tuple[str, ...]) -> None:
    for manifest in rendered(*values):
        if manifest["apiVersion"].startswith("monitoring.coreos.com"):
            continue  # the Prometheus operator's own kinds
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


@needs_helm
def test_an_agent_that_only_observes_has_no_privileges() -> None:
    (agent,) = of_kind(rendered(), "DaemonSet")["spec"]["template"]["spec"]["containers"]
    context = agent["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert not context.get("privileged")
    assert not context["allowPrivilegeEscalation"]


@needs_helm
def test_a_backend_with_a_public_name_answers_to_the_names_that_its_chart_uses() -> None:
    manifests = rendered("backend.publicUrl=https://coresteer.example", "serviceMonitor.enabled=true")
    (backend,) = of_kind(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
    (agent,) = of_kind(manifests, "DaemonSet")["spec"]["template"]["spec"]["containers"]
    settings = {each["name"]: each.get("value") for each in backend["env"]}
    config = Config(public_url=settings["CORESTEER_PUBLIC_URL"], host_names=settings["CORESTEER_HOST_NAMES"])
    address = next(each["value"] for each in agent["env"] if each["name"] == "CORESTEER_BACKEND")
    (scraped,) = of_kind(manifests, "ScrapeConfig")["spec"]["staticConfigs"][0]["targets"]
    assert {urlsplit(address).hostname, urlsplit(f"//{scraped}").hostname, "one-backend"} <= config.answered_names


@needs_helm
def test_a_backend_that_waits_is_not_restarted_and_trusts_the_proxies_that_the_values_name() -> None:
    manifests = rendered(r"backend.trustedProxies=10.1.0.0/16\,10.2.0.1")
    (backend,) = of_kind(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
    probes = [backend[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")]
    assert probes == ["/livez", "/livez", "/readyz"]
    settings = {each["name"]: each.get("value") for each in backend["env"]}
    assert Config(trusted_proxies=settings["CORESTEER_TRUSTED_PROXIES"]).trusted_proxies == "10.1.0.0/16,10.2.0.1"


@needs_helm
def test_the_backends_have_the_job_that_the_dashboard_selects() -> None:
    (endpoint,) = of_kind(rendered("serviceMonitor.enabled=true"), "ServiceMonitor")["spec"]["endpoints"]
    (relabelling,) = endpoint["relabelings"]
    assert relabelling["targetLabel"] == "job"
    assert f'job=\\"{relabelling["replacement"]}\\"' in (CHART.parents[1] / "grafana/coresteer.json").read_text()


@needs_helm
def test_several_backends_have_a_disruption_budget_and_need_nats() -> None:
    of_kind(rendered("backend.replicas=2", "nats.secret=coresteer-nats"), "PodDisruptionBudget")
    with pytest.raises(subprocess.CalledProcessError) as refused:
        rendered("backend.replicas=2")
    assert "needs nats.secret" in refused.value.stderr
