/* Intel AMX for the programs of Wine. Preloaded (LD_PRELOAD) into every one of its processes.
 *
 * Linux lets a process use the tile registers after it has asked for them; Windows gives them to every process. Wine
 * does not ask, so the first tile instruction of ONNX Runtime's CPU kernels for 8-bit integers is an illegal one. Asking
 * fails on a processor without AMX, where nobody uses it. Sources: Linux, Documentation/arch/x86/xstate.rst.
 */
#include <asm/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef ARCH_REQ_XCOMP_PERM
#define ARCH_REQ_XCOMP_PERM 0x1023
#endif
#define TILE_DATA 18 /* number of the register state in XCR0 */

__attribute__((constructor)) static void ask_for_tiles(void)
{
    syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA);
}
