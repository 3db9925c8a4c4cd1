/* processes HOW: makes a child (fork, vfork, raw, exec and its kin, spawn; own_…: with an environment of its own, empty_…: after it
   has emptied its own, less_…: after it has taken STORMLOG_HEAP out of it) that asks for 2000001 bytes where it may, itself asking for 2000002 before
   and 2000003 after; or leaves by _exit or quick_exit. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static volatile int stop;

static void *busy(void *unused) {
    while (!stop) free(malloc(64));
    return unused;
}

int main(int count, char **arguments) {
    void *volatile block;
    const char *how = count > 1 ? arguments[1] : "";
    if (!strcmp(how, "child")) {
        free(block = malloc(2000001));
        return count > 2 && strcmp(arguments[count - 1], count == 7 ? "7" : "6");
    }
    pthread_t other;
    pthread_create(&other, NULL, busy, NULL);
    free(block = malloc(2000002));
    pid_t child = 0;
    char *child_arguments[] = {arguments[0], "child", NULL};
    char *own[] = {"COLOUR=red", "LD_PRELOAD=", NULL}, *none[] = {"STORMLOG_HEAP=", NULL};
    if (!strcmp(how, "fork") || !strcmp(how, "raw")) {
        child = how[0] == 'f' ? fork() : (pid_t)syscall(SYS_fork);
        if (!child) {
            free(block = malloc(2000001));
            _exit(0);
        }
    } else if (!strcmp(how, "vfork")) {
        child = vfork();
        if (!child) _exit(0);
    } else if (!strcmp(how, "exec")) {
        child = fork();
        if (!child) {
            execv("/nonexistent", child_arguments);
            execv(arguments[0], child_arguments);
            _exit(1);
        }
    } else if (strstr(how, "spawn")) {
        char **given = how[0] == 'o' ? own : environ;
        if (posix_spawn(&child, arguments[0], NULL, NULL, child_arguments, given)) return 1;
    } else if (strstr(how, "exec")) {
        child = fork();
        if (!child) {
            free(block = malloc(2000004));
            if (!strncmp(how, "empty_", 6)) clearenv();
            if (!strncmp(how, "less_", 5)) unsetenv("STORMLOG_HEAP");
            if (!strcmp(how, "execl")) execl(arguments[0], arguments[0], "child", NULL);
            if (!strcmp(how, "execlp")) execlp(arguments[0], arguments[0], "child", "3", "4", "5", "6", "7", NULL);
            if (!strcmp(how, "own_execle")) execle(arguments[0], arguments[0], "child", "3", "4", "5", "6", NULL, own);
            if (!strcmp(how, "own_execve")) execve(arguments[0], child_arguments, own);
            if (!strcmp(how, "own_execvpe")) execvpe(arguments[0], child_arguments, own);
            if (!strcmp(how, "empty_execv") || !strcmp(how, "less_execv")) execv(arguments[0], child_arguments);
            if (!strcmp(how, "empty_execvp")) execvp(arguments[0], child_arguments);
            if (!strcmp(how, "no_execve")) execve(arguments[0], child_arguments, none);
            _exit(1);
        }
    }
    int status = 0;
    if (child && (waitpid(child, &status, 0) != child || status)) return 2;
    free(block = malloc(2000003));
    if (!strcmp(how, "_exit")) _exit(0);
    if (!strcmp(how, "quick_exit")) quick_exit(0);
    if (!strcmp(how, "abort")) abort();
    stop = 1;
    pthread_join(other, NULL);
    return 0;
}
