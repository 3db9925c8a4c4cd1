/* lives SCRIPT...: Python begins, runs a script and ends, once for each, all in one process. */
#include <Python.h>

int main(int count, char **arguments) {
    for (int i = 1; i < count; i++) {
        Py_Initialize();
        if (PyRun_SimpleString(arguments[i])) return 2;
        if (Py_FinalizeEx()) return 3;
    }
    return 0;
}
