/* cut HOW: allocates, says "ready", waits for a line (someone cuts the capture meanwhile), allocates on in two threads and leaves with 7. HOW it stands to
   SIGBUS: plain; sigaction or signal: has a handler of its own, which must get its own SIGBUS before and after, and no other; default: dies of its own. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static sigjmp_buf back;
static volatile int caught;

static void on_signal(int number) {
    caught += number == SIGBUS;
    siglongjmp(back, 1);
}

static void on_action(int number, siginfo_t *info, void *context) {
    if (info->si_addr && context) on_signal(number);
}

/* Touches a page of a file that has none. */
static void touch_nothing(void) {
    FILE *file = tmpfile();
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
    if (!sigsetjmp(back, 1)) *(volatile char *)page = 1;
    munmap(page, 4096);
    fclose(file);
}

static void *allocate(void *unused) {
    for (int i = 0; i < 100000; i++) {
        void *volatile block = malloc(100 + i % 50);
        free(block);
    }
    return unused;
}

int main(int count, char **arguments) {
    const char *how = count > 1 ? arguments[1] : "plain";
    int handles = 0;
    if (!strcmp(how, "sigaction")) {
        struct sigaction action = {.sa_sigaction = on_action, .sa_flags = SA_SIGINFO | SA_NODEFER}, now;
        sigaddset(&action.sa_mask, SIGUSR1);
        if (sigaction(SIGBUS, &action, NULL) || sigaction(SIGBUS, NULL, &now)) return 3;
        if (now.sa_sigaction != on_action || now.sa_flags & SA_RESETHAND || !(now.sa_flags & SA_SIGINFO)) return 4;
        if (!sigismember(&now.sa_mask, SIGUSR1) || sigismember(&now.sa_mask, SIGUSR2)) return 4;
        handles = 1;
    } else if (!strcmp(how, "signal")) {
        if (signal(SIGBUS, on_signal) != SIG_DFL || signal(SIGBUS, on_signal) != on_signal) return 3;
        handles = 1;
    }
    if (handles) touch_nothing();
    allocate(NULL);
    puts("ready");
    fflush(stdout);
    if (getchar() != '\n') return 5;
    pthread_t other;
    pthread_create(&other, NULL, allocate, NULL);
    allocate(NULL);
    pthread_join(other, NULL);
    if (handles || !strcmp(how, "default")) touch_nothing();
    if (caught != 2 * handles) return 6;
    puts("done");
    return 7;
}
