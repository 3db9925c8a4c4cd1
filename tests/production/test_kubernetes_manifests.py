"""The manifests in examples/kubernetes. No kubelet can be had here: only their structure is checked."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import components

EXAMPLES = Path(__file__).parents[2] / "examples" / "kubernetes"
#: Fields that exist, of those that the examples may use: a misspelt one is ignored by some servers.
POD = {
    "automountServiceAccountToken",
    "containers",
    "initContainers",
    "restartPolicy",
    "securityContext",
    "tolerations",
    "volumes",
}
CONTAINER = {
    "args",
    "command",
    "env",
    "image",
    "name",
    "resources",
    "restartPolicy",
    "securityContext",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "volumeMounts",
}
#: What the downward API offers to a variable.
FIELDS = {"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName"}
QUANTITY = re.compile(r"\d+(m|Ki|Mi|Gi)?")


def manifests() -> dict[str, Any]:
    """Each file by a real YAML parser."""
    root = components.unpacked("bookworm", "python3-yaml")
    sys.path.insert(0, str(root / "usr/lib/python3/dist-packages"))
    import yaml

    return {path.name: yaml.safe_load(path.read_text()) for path in sorted(EXAMPLES.glob("*.yaml"))}


def pods() -> list[tuple[str, Any]]:
    found = manifests()
    assert set(found) == {"daemonset.yaml", "job.yaml", "sidecar.yaml"}
    kinds = {name: (manifest["apiVersion"], manifest["kind"]) for name, manifest in found.items()}
    assert kinds["daemonset.yaml"] == ("apps/v1", "DaemonSet") and kinds["job.yaml"] == ("batch/v1", "Job")
    return [(name, manifest["spec"]["template"]["spec"]) for name, manifest in found.items()]


def test_manifests_have_limits_and_need_no_root_by_a_check_of_their_structure_not_by_a_kubelet() -> None:
    for name, pod in pods():
        assert set(pod) <= POD, name
        security = pod["securityContext"]
        assert security["runAsNonRoot"] is True and security["runAsUser"] > 0, name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["automountServiceAccountToken"] is False, name
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for container in [*pod.get("initContainers", []), *pod["containers"]]:
            assert set(container) <= CONTAINER, (name, container["name"])
            own = container["securityContext"]
            assert own["readOnlyRootFilesystem"] is True and own["allowPrivilegeEscalation"] is False, name
            assert own["capabilities"] == {"drop": ["ALL"]}, name
            for kind in ("requests", "limits"):
                amounts = container["resources"][kind]
                assert "memory" in amounts and all(QUANTITY.fullmatch(str(part)) for part in amounts.values())
            for mount in container["volumeMounts"]:
                assert mount["name"] in volumes and mount["mountPath"].startswith("/"), name
            for variable in container["env"]:
                source = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
                assert "value" in variable or source in FIELDS, (name, variable)
        for volume in volumes.values():
            assert ("emptyDir" in volume) != ("hostPath" in volume), name
            assert "hostPath" in volume or volume["emptyDir"]["sizeLimit"], name


def test_commands_of_the_manifests_are_accepted_by_stormlog(tmp_path: Path) -> None:
    for name, pod in pods():
        for container in [*pod.get("initContainers", []), *pod["containers"]]:
            words = container["command"]
            assert words[0] == "stormlog", name
            places = "|".join(mount["mountPath"] for mount in container["volumeMounts"])
            words = [re.sub(rf"^({places})(?=/|$)", str(tmp_path), word) for word in words]
            words = [*words[1:], "true"] if words[1] == "run" else [*words[1:], "--once"]
            done = subprocess.run(
                [sys.executable, "-m", "stormlog", *words], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, (name, words, done.stderr)


def test_every_pod_that_trains_knows_its_name_and_namespace() -> None:
    for name, pod in pods():
        if name == "daemonset.yaml":
            continue
        (train,) = pod["containers"]
        known = {variable["name"] for variable in train["env"]}
        assert {"POD_NAME", "POD_NAMESPACE"} <= known, name
