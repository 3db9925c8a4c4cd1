/* Takes memory and keeps it until it is killed: hog MILLISECONDS, the pause after each MiB. */

#include <stdlib.h>
#include <string.h>
#include <time.h>

int main(int count, char **words) {
    long pause = count > 1 ? atol(words[1]) : 5;
    struct timespec nap = {pause / 1000, pause % 1000 * 1000000};
    for (;;) {
        char *more = malloc(1 << 20);
        if (more)
            memset(more, 1, 1 << 20);
        nanosleep(&nap, NULL);
    }
}
