/* The floor for `bale gen` into a directory: one thread, mkdir / open / write / close, nothing else.
 *
 *   bale gen --manifest tree.list OPTIONS          the tree, as a list
 *   cc -O2 -o populate populate.c
 *   populate DIRECTORY < tree.list                 the same names and sizes below DIRECTORY
 *
 * The list is read, and everything is allocated, before the clock starts. Content is cut from a random pool, as there.
 * Prints seconds, and files and directories made. Names with escapes (--odd-names) are made as the list spells them.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define POOL_BYTES ((size_t)50 << 20)

struct entry {
    char *path;
    long size; /* -1: a directory */
};

static void die(const char *what, const char *on) {
    fprintf(stderr, "%s %s: %s\n", what, on, strerror(errno));
    exit(1);
}

static struct entry *read_list(size_t *count) {
    size_t room = 1 << 20, used = 0, line_room = 0;
    struct entry *entries = malloc(room * sizeof *entries);
    char *line = NULL;
    ssize_t len;
    while ((len = getline(&line, &line_room, stdin)) > 0) {
        char hash[72], size[24];
        int at = 0;
        line[len - 1] = 0;
        if ((line[0] != 'f' && line[0] != 'd') || sscanf(line + 1, " %71s %23s %n", hash, size, &at) != 2 || !at)
            continue;
        if (used == room)
            entries = realloc(entries, (room *= 2) * sizeof *entries);
        entries[used].path = strdup(line + 1 + at);
        entries[used++].size = line[0] == 'd' ? -1 : atol(size);
    }
    free(line);
    *count = used;
    return entries;
}

int main(int argc, char **argv) {
    size_t count, files = 0, directories = 0;
    struct timespec began, ended;
    unsigned long word = 1;
    if (argc != 2) {
        fprintf(stderr, "usage: populate DIRECTORY < LIST\n");
        return 2;
    }
    struct entry *entries = read_list(&count);
    unsigned long *pool = malloc(POOL_BYTES);
    for (size_t at = 0; at < POOL_BYTES / sizeof word; at++) {
        word ^= word << 13, word ^= word >> 7, word ^= word << 17;
        pool[at] = word;
    }
    if (chdir(argv[1]))
        die("enter", argv[1]);
    clock_gettime(CLOCK_MONOTONIC, &began);
    for (size_t at = 0; at < count; at++) {
        const struct entry *entry = &entries[at];
        if (entry->size < 0) {
            if (mkdir(entry->path, 0755))
                die("mkdir", entry->path);
            directories++;
            continue;
        }
        int file = open(entry->path, O_CREAT | O_EXCL | O_WRONLY, 0644);
        if (file < 0)
            die("open", entry->path);
        word ^= word << 13, word ^= word >> 7, word ^= word << 17;
        for (long done = 0; done < entry->size;) {
            size_t from = word % (POOL_BYTES / 2), len = entry->size - done;
            ssize_t wrote = write(file, (char *)pool + from, len < POOL_BYTES / 2 ? len : POOL_BYTES / 2);
            if (wrote <= 0)
                die("write", entry->path);
            done += wrote;
        }
        if (close(file))
            die("close", entry->path);
        files++;
    }
    clock_gettime(CLOCK_MONOTONIC, &ended);
    printf("%.3f s, %zu files, %zu directories\n",
           (ended.tv_sec - began.tv_sec) + (ended.tv_nsec - began.tv_nsec) / 1e9, files, directories);
    return 0;
}
