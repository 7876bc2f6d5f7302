/* FP32 to FP16 by rounding to nearest even, in Mesa's CPU Vulkan driver.
 *
 * Why: the driver builds the conversion with the instruction vcvtps2ph and asks it to truncate toward zero; GPUs round
 * to nearest even, as IEEE 754 does. This library stands before LLVM's LLVMBuildCall2, through which the driver makes
 * the call, and replaces the rounding operand of that one intrinsic (llvm.x86.vcvtps2ph.128 and .256; operand 2: bit 2
 * clear = use bits 1 and 0, which are 0 for nearest even, 3 for truncation; Intel's manual, VCVTPS2PH).
 *
 * Load it with RTLD_GLOBAL before the driver. The driver's cache of compiled shaders does not know of it: give it a
 * cache folder of its own. Functions of LLVM's C API are declared here with plain pointers.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <string.h>

typedef void *handle; /* LLVMBuilderRef, LLVMTypeRef, LLVMValueRef */

static handle (*build_call)(handle builder, handle type, handle function, handle *arguments, unsigned count, const char *name);
static const char *(*value_name)(handle value, size_t *length);
static handle (*type_of)(handle value);
static handle (*constant)(handle type, unsigned long long value, int sign_extend);

static int find_llvm(struct dl_phdr_info *info, size_t size, void *data)
{
    handle library;

    if (!info->dlpi_name || !strstr(info->dlpi_name, "libLLVM"))
        return 0;
    if (!(library = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD)))
        return 0;
    build_call = dlsym(library, "LLVMBuildCall2");
    value_name = dlsym(library, "LLVMGetValueName2");
    type_of = dlsym(library, "LLVMTypeOf");
    constant = dlsym(library, "LLVMConstInt");
    return build_call != NULL;
}

handle LLVMBuildCall2(handle builder, handle type, handle function, handle *arguments, unsigned count, const char *name)
{
    static const char conversion[] = "llvm.x86.vcvtps2ph.";
    const char *callee;
    size_t length;

    if (!build_call)
        dl_iterate_phdr(find_llvm, NULL);
    if (count == 2 && value_name && type_of && constant)
    {
        callee = value_name(function, &length);
        if (callee && length >= sizeof(conversion) - 1 && !memcmp(callee, conversion, sizeof(conversion) - 1))
        {
            handle nearest[2] = {arguments[0], constant(type_of(arguments[1]), 0, 0)};
            return build_call(builder, type, function, nearest, count, name);
        }
    }
    return build_call(builder, type, function, arguments, count, name);
}
