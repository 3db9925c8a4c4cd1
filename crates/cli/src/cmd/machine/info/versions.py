# Run with the user's interpreter: prints its version, then that of TensorFlow and the distribution it came from, then that of JAX and the
# distribution that lets it use a GPU; empty lines where there is none. Imports neither.
import sys

# Nothing of the directory that the command happens to be started in.
sys.path = [folder for folder in sys.path if folder]

import importlib.metadata
import importlib.util


def tensorflow():
    # The module has one name; the distribution has another for each kind of machine and each builder (tensorflow-cpu, tensorflow-rocm,
    # tensorflow-macos, tf-nightly, a vendor's own), so the distribution is looked up by the module.
    names = set(importlib.metadata.packages_distributions().get("tensorflow", ()))
    names = sorted(names, key=lambda name: (len(name), name))
    # Several distributions may share the module's folder: the one that installed the module itself is asked, else that of the shortest name.
    for name in sorted(names, key=lambda name: not has_file(name, "tensorflow/__init__.py")):
        return importlib.metadata.version(name) or "unknown", name
    return "unknown", ""


def has_file(name, path):
    return any(str(file) == path for file in importlib.metadata.files(name) or ())


def jax():
    try:
        version = importlib.metadata.version("jax")
    except importlib.metadata.PackageNotFoundError:
        version = "unknown"
    plugins = importlib.metadata.entry_points(group="jax_plugins")
    # Ours is there to be called (STORMLOG=1); it is not of a device.
    others = [plugin for plugin in plugins if plugin.dist and plugin.dist.name != "stormlog"]
    names = sorted({f"{plugin.dist.name} {plugin.dist.version}" for plugin in others})
    return version, ", ".join(names)


def answer(module, ask):
    # Broken metadata of one framework is not the other's.
    try:
        if importlib.util.find_spec(module) is None:
            return "", ""
    except Exception:
        return "", ""
    try:
        return ask()
    except Exception:
        return "unknown", ""


print(sys.version.replace("\n", " "))
for line in (*answer("tensorflow", tensorflow), *answer("jax", jax)):
    print(line)
