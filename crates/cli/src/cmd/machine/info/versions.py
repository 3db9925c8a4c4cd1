# Run with the user's interpreter: prints its version, then that of TensorFlow where there is one.
# Imports nothing of TensorFlow.
import sys

# Nothing of the directory that the command happens to be started in.
sys.path = [folder for folder in sys.path if folder]

import importlib.metadata
import importlib.util


def tensorflow():
    # The package has another name for each kind of machine; the module never has.
    for name in ("tensorflow", "tensorflow-cpu"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    if importlib.util.find_spec("tensorflow") is not None:
        for name in importlib.metadata.packages_distributions().get("tensorflow", ()):
            return importlib.metadata.version(name)


print(sys.version.replace("\n", " "))
print(tensorflow() or "")
