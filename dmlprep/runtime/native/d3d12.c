/* d3d12.dll for Wine that hands Direct3D 12 to the distribution's native libvkd3d.
 *
 * Why: the Direct3D 12 inside Wine 10 takes shaders of model 5.1 only, DirectML has some of model 6; libvkd3d 2.1 takes
 * both. Built with winegcc as a Winelib module: Windows code calls it, it calls native libraries.
 *
 * The declarations of libvkd3d follow its public header vkd3d.h (libvkd3d's API is stable since 1.0); DirectX types come
 * from Wine's own headers.
 */
#define COBJMACROS
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "windef.h"
#include "winbase.h"
#include "initguid.h"
#include "dxgi1_4.h"
#include "d3d12.h"
#include "memory.h"

/* ---- libvkd3d ------------------------------------------------------------------------------------------------- */

enum { VKD3D_INSTANCE_CREATE_INFO = 0, VKD3D_DEVICE_CREATE_INFO = 1, VKD3D_APPLICATION_INFO = 5 };
enum { VKD3D_API_VERSION = 21 }; /* 2.1: what this program was written for */

typedef void *(*thread_function)(void *data);

struct application_info
{
    int type;
    const void *next;
    const char *name;
    unsigned int version;
    const char *engine_name;
    unsigned int engine_version;
    int api_version;
};

struct instance_info
{
    int type;
    const void *next;
    HRESULT (*signal_event)(HANDLE event);
    void *(*create_thread)(thread_function main, void *data);
    HRESULT (*join_thread)(void *thread);
    SIZE_T wchar_size;
    void *get_instance_proc_addr;
    const char *const *extensions;
    unsigned int extension_count;
};

struct device_info
{
    int type;
    const void *next;
    D3D_FEATURE_LEVEL minimum_feature_level;
    void *instance;
    const struct instance_info *instance_info;
    void *physical_device;
    const char *const *extensions;
    unsigned int extension_count;
    IUnknown *parent;
    LUID adapter_luid;
};

static struct
{
    HRESULT (*create_device)(const struct device_info *, const GUID *, void **);
    HRESULT (*serialize)(const void *, int, void **, void **);
    HRESULT (*serialize_versioned)(const void *, void **, void **);
    HRESULT (*deserializer)(const void *, SIZE_T, const GUID *, void **);
    HRESULT (*deserializer_versioned)(const void *, SIZE_T, const GUID *, void **);
} vkd3d;

static INIT_ONCE loaded = INIT_ONCE_STATIC_INIT;

static BOOL WINAPI load_libraries(INIT_ONCE *once, void *parameter, void **context)
{
    /* The interposer must be in the global scope before libvkd3d loads the Vulkan driver and the driver loads LLVM. */
    const char *rounding = getenv("DMLPREP_ROUNDING");
    void *library;

    if (rounding && *rounding && !dlopen(rounding, RTLD_NOW | RTLD_GLOBAL))
        fprintf(stderr, "d3d12: %s\n", dlerror());
    if (!(library = dlopen("libvkd3d.so.1", RTLD_NOW | RTLD_LOCAL)))
    {
        fprintf(stderr, "d3d12: %s\n", dlerror());
        return FALSE;
    }
    vkd3d.create_device = dlsym(library, "vkd3d_create_device");
    vkd3d.serialize = dlsym(library, "vkd3d_serialize_root_signature");
    vkd3d.serialize_versioned = dlsym(library, "vkd3d_serialize_versioned_root_signature");
    vkd3d.deserializer = dlsym(library, "vkd3d_create_root_signature_deserializer");
    vkd3d.deserializer_versioned = dlsym(library, "vkd3d_create_versioned_root_signature_deserializer");
    return vkd3d.create_device && vkd3d.serialize && vkd3d.serialize_versioned && vkd3d.deserializer
            && vkd3d.deserializer_versioned;
}

static BOOL load(void)
{
    return InitOnceExecuteOnce(&loaded, load_libraries, NULL, NULL);
}

/* ---- what libvkd3d asks of its caller: threads that Wine knows, because they signal Windows events ---------------- */

struct thread
{
    HANDLE handle;
    thread_function main;
    void *data;
};

static DWORD WINAPI thread_main(void *argument)
{
    struct thread *thread = argument;
    thread->main(thread->data);
    return 0;
}

static void *create_thread(thread_function main, void *data)
{
    struct thread *thread = malloc(sizeof(*thread));

    if (!thread)
        return NULL;
    thread->main = main;
    thread->data = data;
    /* LLVM compiles shaders on these threads and needs a deep stack. */
    thread->handle = CreateThread(NULL, 8 << 20, thread_main, thread, STACK_SIZE_PARAM_IS_A_RESERVATION, NULL);
    if (!thread->handle)
    {
        free(thread);
        return NULL;
    }
    return thread;
}

static HRESULT join_thread(void *argument)
{
    struct thread *thread = argument;
    DWORD result = WaitForSingleObject(thread->handle, INFINITE);

    CloseHandle(thread->handle);
    free(thread);
    return result == WAIT_OBJECT_0 ? S_OK : E_FAIL;
}

static HRESULT signal_event(HANDLE event)
{
    return SetEvent(event) ? S_OK : E_FAIL;
}

/* ---- the device ------------------------------------------------------------------------------------------------- */

/* libvkd3d answers E_NOTIMPL, which DirectML takes for an error; no metacommands is the truth. */
static HRESULT STDMETHODCALLTYPE no_meta_commands(ID3D12Device5 *device, UINT *count, D3D12_META_COMMAND_DESC *descriptions)
{
    if (count)
        *count = 0;
    return S_OK;
}

static BOOL replace_meta_commands(ID3D12Device5 *device)
{
    void *slot = (void *)&device->lpVtbl->EnumerateMetaCommands;
    size_t page = sysconf(_SC_PAGESIZE);
    char *start = (char *)((size_t)slot & ~(page - 1));
    size_t size = (char *)slot + sizeof(void *) - start;

    if (*(void **)slot == (void *)no_meta_commands)
        return TRUE;
    /* The table lies in libvkd3d's read-only data. */
    if (mprotect(start, size, PROT_READ | PROT_WRITE))
        return FALSE;
    *(void **)slot = (void *)no_meta_commands;
    return TRUE;
}

/* The device's LUID must be one that DXGI knows, else DirectML fails with 887A0002. */
static LUID adapter_luid(IUnknown *unknown)
{
    LUID luid = {0, 0};
    DXGI_ADAPTER_DESC description;
    IDXGIAdapter *adapter;

    if (unknown && SUCCEEDED(IUnknown_QueryInterface(unknown, &IID_IDXGIAdapter, (void **)&adapter)))
    {
        if (SUCCEEDED(IDXGIAdapter_GetDesc(adapter, &description)))
            luid = description.AdapterLuid;
        IDXGIAdapter_Release(adapter);
    }
    return luid;
}

static IUnknown *first_adapter(void)
{
    HRESULT(WINAPI * create_factory)(REFIID, void **);
    HMODULE dxgi = LoadLibraryA("dxgi.dll");
    IDXGIFactory1 *factory = NULL;
    IDXGIAdapter *adapter = NULL;

    if (!dxgi || !(create_factory = (void *)GetProcAddress(dxgi, "CreateDXGIFactory1")))
        return NULL;
    if (FAILED(create_factory(&IID_IDXGIFactory1, (void **)&factory)))
        return NULL;
    if (FAILED(IDXGIFactory1_EnumAdapters(factory, 0, &adapter)))
        adapter = NULL;
    IDXGIFactory1_Release(factory);
    return (IUnknown *)adapter;
}

/* Direct3D 12 has one device an adapter in a process, which lives as long as somebody uses it. Here it lives until the
 * process ends: making one costs more than most models need to run. */
static ID3D12Device5 *shared;
static LUID shared_luid;
static SRWLOCK shared_lock = SRWLOCK_INIT;

static HRESULT create_device(IUnknown *adapter, LUID luid, D3D_FEATURE_LEVEL minimum)
{
    struct application_info application = {.type = VKD3D_APPLICATION_INFO, .name = "dmlprep", .api_version = VKD3D_API_VERSION};
    struct instance_info instance = {
        .type = VKD3D_INSTANCE_CREATE_INFO,
        .next = &application,
        .signal_event = signal_event,
        .create_thread = create_thread,
        .join_thread = join_thread,
        .wchar_size = sizeof(WCHAR),
    };
    struct device_info info = {
        .type = VKD3D_DEVICE_CREATE_INFO,
        .minimum_feature_level = minimum,
        .instance_info = &instance,
        .parent = adapter,
        .adapter_luid = luid,
    };
    HRESULT hr = vkd3d.create_device(&info, &IID_ID3D12Device5, (void **)&shared);

    if (FAILED(hr))
    {
        shared = NULL;
        return hr;
    }
    shared_luid = luid;
    if (!replace_meta_commands(shared) || !memory_watch(shared))
        fprintf(stderr, "d3d12: the table of device functions cannot be changed\n");
    return hr;
}

HRESULT WINAPI D3D12CreateDevice(IUnknown *adapter, D3D_FEATURE_LEVEL minimum, REFIID iid, void **device)
{
    IUnknown *own = NULL;
    HRESULT hr = S_OK;
    LUID luid;

    if (!load())
        return E_FAIL;
    if (!adapter)
        adapter = own = first_adapter();
    luid = adapter_luid(adapter);

    AcquireSRWLockExclusive(&shared_lock);
    /* A device that was removed stays with those who have it. */
    if (shared && (memcmp(&luid, &shared_luid, sizeof(luid)) || FAILED(ID3D12Device5_GetDeviceRemovedReason(shared))))
        shared = NULL;
    if (!shared)
        hr = create_device(adapter, luid, minimum);
    if (SUCCEEDED(hr))
        hr = device ? ID3D12Device5_QueryInterface(shared, iid, device) : S_FALSE;
    ReleaseSRWLockExclusive(&shared_lock);

    if (own)
        IUnknown_Release(own);
    return hr;
}

/* ---- the rest is passed on ---------------------------------------------------------------------------------------- */

HRESULT WINAPI D3D12GetDebugInterface(REFIID iid, void **debug)
{
    if (debug)
        *debug = NULL;
    return E_NOINTERFACE;
}

HRESULT WINAPI D3D12EnableExperimentalFeatures(UINT count, const IID *iids, void *structs, UINT *sizes)
{
    return E_NOINTERFACE;
}

/* Of the Agility SDK, which is not here. Who asks (onnxruntime-genai) goes on with D3D12CreateDevice. */
HRESULT WINAPI D3D12GetInterface(REFCLSID class, REFIID iid, void **interface_of_class)
{
    if (interface_of_class)
        *interface_of_class = NULL;
    return E_NOINTERFACE;
}

HRESULT WINAPI D3D12SerializeRootSignature(
        const D3D12_ROOT_SIGNATURE_DESC *description, D3D_ROOT_SIGNATURE_VERSION version, ID3DBlob **blob, ID3DBlob **error)
{
    return load() ? vkd3d.serialize(description, version, (void **)blob, (void **)error) : E_FAIL;
}

HRESULT WINAPI D3D12SerializeVersionedRootSignature(
        const D3D12_VERSIONED_ROOT_SIGNATURE_DESC *description, ID3DBlob **blob, ID3DBlob **error)
{
    return load() ? vkd3d.serialize_versioned(description, (void **)blob, (void **)error) : E_FAIL;
}

HRESULT WINAPI D3D12CreateRootSignatureDeserializer(const void *data, SIZE_T size, REFIID iid, void **deserializer)
{
    return load() ? vkd3d.deserializer(data, size, iid, deserializer) : E_FAIL;
}

HRESULT WINAPI D3D12CreateVersionedRootSignatureDeserializer(const void *data, SIZE_T size, REFIID iid, void **deserializer)
{
    return load() ? vkd3d.deserializer_versioned(data, size, iid, deserializer) : E_FAIL;
}
