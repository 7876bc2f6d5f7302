/* Lists the Vulkan devices that the drivers of this sandbox offer, one a line, fields apart by tabs:
 *
 *     NAME  VENDOR:DEVICE  TYPE  VULKAN  DRIVER  VERSION  BYTES
 *
 * ids in hexadecimal; TYPE as VkPhysicalDeviceType (1 integrated, 2 discrete, 3 virtual, 4 CPU); BYTES of memory of the
 * device's own. Exit code 1 and a line on stderr where there is no Vulkan here.
 *
 * The declarations follow Vulkan's specification (registry.khronos.org/vulkan), as far as they are needed; its headers
 * are no part of the root file system.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { APPLICATION_INFO = 0, INSTANCE_CREATE_INFO = 1, PROPERTIES_2 = 1000059001, DRIVER_PROPERTIES = 1000196000 };
enum { MOST_DEVICES = 16, VULKAN_1_2 = 1 << 22 | 2 << 12, DEVICE_LOCAL = 1 };

struct application_info
{
    int type;
    const void *next;
    const char *name;
    uint32_t version;
    const char *engine;
    uint32_t engine_version;
    uint32_t api_version;
};

struct instance_info
{
    int type;
    const void *next;
    uint32_t flags;
    const struct application_info *application;
    uint32_t layer_count;
    const char *const *layers;
    uint32_t extension_count;
    const char *const *extensions;
};

struct driver_properties
{
    int type;
    void *next;
    uint32_t id;
    char name[256];
    char info[256];
    uint8_t conformance[4];
};

struct properties
{
    int type;
    void *next;
    uint32_t api_version;
    uint32_t driver_version;
    uint32_t vendor;
    uint32_t device;
    uint32_t kind;
    char name[256];
    uint64_t rest[256]; /* the cache's id, limits and sparse properties take 540 bytes */
};

struct memory
{
    uint32_t type_count;
    uint32_t types[32][2];
    uint32_t heap_count;
    struct
    {
        uint64_t size;
        uint32_t flags;
    } heaps[16];
};

typedef void *(*get_function)(void *instance, const char *name);

static void say(const char *text, char after)
{
    for (; *text; text++)
        putchar((unsigned char)*text < ' ' ? ' ' : *text);
    putchar(after);
}

int main(void)
{
    const struct application_info application = {.type = APPLICATION_INFO, .name = "dmlprep", .api_version = VULKAN_1_2};
    const struct instance_info info = {.type = INSTANCE_CREATE_INFO, .application = &application};
    int (*create)(const struct instance_info *, const void *, void **);
    int (*enumerate)(void *, uint32_t *, void **);
    void (*describe)(void *, struct properties *);
    void (*remember)(void *, struct memory *);
    void *instance, *devices[MOST_DEVICES];
    uint32_t count = MOST_DEVICES;
    get_function get;
    void *library;
    int result;

    if (!(library = dlopen("libvulkan.so.1", RTLD_NOW)) || !(get = (get_function)dlsym(library, "vkGetInstanceProcAddr")))
        return fprintf(stderr, "%s\n", dlerror()), 1;
    if (!(create = get(NULL, "vkCreateInstance")) || (result = create(&info, NULL, &instance)))
        return fprintf(stderr, "vkCreateInstance gives %d\n", create ? result : 0), 1;
    enumerate = get(instance, "vkEnumeratePhysicalDevices");
    describe = get(instance, "vkGetPhysicalDeviceProperties2");
    remember = get(instance, "vkGetPhysicalDeviceMemoryProperties");
    /* 5: there are more. */
    if ((result = enumerate(instance, &count, devices)) && result != 5)
        return fprintf(stderr, "vkEnumeratePhysicalDevices gives %d\n", result), 1;
    for (uint32_t i = 0; i < count; i++)
    {
        struct driver_properties driver = {.type = DRIVER_PROPERTIES};
        struct properties found = {.type = PROPERTIES_2, .next = &driver};
        struct memory memory = {0};
        unsigned long long bytes = 0;

        describe(devices[i], &found);
        remember(devices[i], &memory);
        for (uint32_t j = 0; j < memory.heap_count; j++)
            bytes += memory.heaps[j].flags & DEVICE_LOCAL ? memory.heaps[j].size : 0;
        say(found.name, '\t');
        printf("%04x:%04x\t%u\t", found.vendor, found.device, found.kind);
        printf("%u.%u.%u\t", found.api_version >> 22, found.api_version >> 12 & 1023, found.api_version & 4095);
        say(driver.name, '\t');
        say(driver.info, '\t');
        printf("%llu\n", bytes);
    }
    return 0;
}
