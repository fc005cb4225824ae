/* Stands for Interflow where only the packing is tested: static, small, with the commands that `make release` runs. */
#include <stdio.h>
#include <string.h>

int main(int count, char **arguments) {
    if (count == 4 && !strcmp(arguments[1], "man")) {
        char path[4096];
        snprintf(path, sizeof path, "%s/interflow.1", arguments[3]);
        FILE *page = fopen(path, "w");
        if (!page) return 1;
        fputs(".TH interflow 1\n", page);
        return fclose(page) != 0;
    }
    if (count == 3 && !strcmp(arguments[1], "completions")) {
        printf("# completions for %s\n", arguments[2]);
        return 0;
    }
    if (count == 2 && !strcmp(arguments[1], "--version")) {
        puts("interflow " VERSION);
        return 0;
    }
    /* What a wrapper must pass on: arguments and the exit code. */
    for (int at = 1; at < count; at++) printf("%s\n", arguments[at]);
    return 3;
}
