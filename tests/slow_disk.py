"""Make a disk slow for the runs that a test starts: a preloaded library waits at each large piece.

Real reads and writes of real files, that take as long as on a disk of ``rate`` bytes a second.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

__all__ = ["compiled", "slow"]

# Waits for what is read from or written to files that have DISK in their path, 64 KiB or more at a time,
# and for what is freed when the last descriptor of one is closed that has no name any more.
# DISK_AT: only where the call says at which place of the file.
SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>
static void wait_for(int fd, ssize_t count) {
    static double rate;
    char link[64], where[4096];
    if (count < 65536) return;
    if (!rate) rate = getenv("DISK_RATE") ? atof(getenv("DISK_RATE")) : 1e12;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, where, sizeof where - 1);
    where[n < 0 ? 0 : n] = 0;
    if (getenv("DISK") && strstr(where, getenv("DISK"))) usleep(count / rate * 1e6);
}
#define REAL(name, ...) \
    static ssize_t (*real)(__VA_ARGS__); \
    if (!real) real = dlsym(RTLD_NEXT, #name)
#define AS_IT_COMES(name, kind) \
ssize_t name(int fd, kind data, size_t size) { \
    REAL(name, int, kind, size_t); \
    ssize_t n = real(fd, data, size); if (!getenv("DISK_AT")) wait_for(fd, n); return n; \
}
#define AT(name, kind) \
ssize_t name(int fd, kind data, size_t size, off_t at) { \
    REAL(name, int, kind, size_t, off_t); \
    ssize_t n = real(fd, data, size, at); wait_for(fd, n); return n; \
}
#define PIECES(name) \
ssize_t name(int fd, const struct iovec *pieces, int count, off_t at) { \
    REAL(name, int, const struct iovec *, int, off_t); \
    ssize_t n = real(fd, pieces, count, at); wait_for(fd, n); return n; \
}
int close(int fd) {
    static int (*real)(int);
    struct stat file;
    if (!real) real = dlsym(RTLD_NEXT, "close");
    if (!getenv("DISK_AT") && !fstat(fd, &file) && S_ISREG(file.st_mode) && !file.st_nlink)
        wait_for(fd, file.st_size);
    return real(fd);
}
AS_IT_COMES(read, void *)
AS_IT_COMES(write, const void *)
AT(pread, void *)
AT(pread64, void *)
AT(pwrite, const void *)
AT(pwrite64, const void *)
PIECES(pwritev)
PIECES(pwritev64)
"""


def compiled(folder: Path) -> Path | None:
    """Return the library, made in ``folder``, None where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    (folder / "slow.c").write_text(SOURCE)
    argv = [compiler, "-shared", "-fPIC", "-O1", "-o", "slow.so", "slow.c", "-ldl"]
    subprocess.run(argv, cwd=folder, check=True)
    return folder / "slow.so"


def slow(library: Path, where: Path, rate: float, *, copies_only: bool = False) -> dict[str, str]:
    """Return an environment in which the files below ``where`` are on a disk of ``rate`` bytes a second.

    ``copies_only``: what is read and written from the beginning to the end of a file is not slow.
    """
    found = {"LD_PRELOAD": str(library), "DISK": str(where), "DISK_RATE": str(rate)}
    return {**found, "DISK_AT": "1"} if copies_only else found
