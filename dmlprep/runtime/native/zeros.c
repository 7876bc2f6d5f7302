/* Clear large memory without touching it. Preloaded (LD_PRELOAD) into every process of Wine.
 *
 * DirectML makes a descriptor heap for each session, and libvkd3d makes two sets of a million descriptors for each heap.
 * lavapipe keeps them in one file in memory, and clears both with memset: 512 MB, of which a session uses some kilobytes.
 * MADV_REMOVE makes a hole in the file, which reads as zeros: the same content, without the pages. The kernel refuses it
 * for all memory that is not a shared mapping of a file; such memory is cleared as usual.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>

#define LARGE ((size_t)16 << 20)
#define PAGE ((uintptr_t)4096)

static void *(*clear)(void *, int, size_t);

void *memset(void *memory, int byte, size_t size)
{
    if (!clear)
        clear = dlsym(RTLD_NEXT, "memset");
    if (size >= LARGE && (unsigned char)byte == 0)
    {
        char *end = (char *)memory + size;
        char *first = (char *)(((uintptr_t)memory + PAGE - 1) & ~(PAGE - 1)), *last = (char *)((uintptr_t)end & ~(PAGE - 1));

        int kept = errno;

        if (!madvise(first, last - first, MADV_REMOVE))
        {
            clear(memory, 0, first - (char *)memory);
            clear(last, 0, end - last);
            return memory;
        }
        errno = kept;
    }
    return clear(memory, byte, size);
}
