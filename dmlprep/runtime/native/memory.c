/* How much memory of a Direct3D 12 device is held: every buffer and heap is counted when it is made, and taken off when
 * the device lets it go. DirectML and ONNX Runtime make them by CreateCommittedResource; by CreateHeap where a release
 * of it lays several resources into one.
 *
 * The functions that make them are replaced in the device's table. An object tells that it goes by an interface that is
 * kept with its private data (ID3D12Object::SetPrivateDataInterface), which it releases at its end.
 */
#define COBJMACROS
#include "memory.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* What a GPU with memory of its own has there, and what it reads of the machine's. */
enum { LOCAL, SHARED, GROUPS };

static struct
{
    UINT64 now, peak;
} held[GROUPS];
static SRWLOCK held_lock = SRWLOCK_INIT;

static ID3D12Device5Vtbl original;

static void count(int group, INT64 bytes)
{
    AcquireSRWLockExclusive(&held_lock);
    held[group].now += bytes;
    if (held[group].now > held[group].peak)
        held[group].peak = held[group].now;
    ReleaseSRWLockExclusive(&held_lock);
}

/* Bytes: of the device's own memory now and at most, of the machine's now and at most. Exported, for the host program. */
void WINAPI DmlprepMemory(UINT64 bytes[4])
{
    AcquireSRWLockShared(&held_lock);
    for (int group = 0; group < GROUPS; group++)
    {
        bytes[2 * group] = held[group].now;
        bytes[2 * group + 1] = held[group].peak;
    }
    ReleaseSRWLockShared(&held_lock);
}

/* ---- an interface whose last reference is that of the object that it is kept with --------------------------------- */

struct note
{
    const IUnknownVtbl *lpVtbl;
    LONG references;
    int group;
    UINT64 bytes;
};

static HRESULT STDMETHODCALLTYPE note_query(IUnknown *this, REFIID iid, void **object)
{
    *object = NULL;
    if (!IsEqualGUID(iid, &IID_IUnknown))
        return E_NOINTERFACE;
    IUnknown_AddRef(this);
    *object = this;
    return S_OK;
}

static ULONG STDMETHODCALLTYPE note_add(IUnknown *this)
{
    return InterlockedIncrement(&((struct note *)this)->references);
}

static ULONG STDMETHODCALLTYPE note_release(IUnknown *this)
{
    struct note *note = (struct note *)this;
    ULONG left = InterlockedDecrement(&note->references);

    if (!left)
    {
        count(note->group, -(INT64)note->bytes);
        free(note);
    }
    return left;
}

static const IUnknownVtbl note_table = {note_query, note_add, note_release};

/* {5F6F7A3E-8D5C-4C56-9A0E-3D1B8A6F4C21}, made for this. */
static const GUID note_key = {0x5f6f7a3e, 0x8d5c, 0x4c56, {0x9a, 0x0e, 0x3d, 0x1b, 0x8a, 0x6f, 0x4c, 0x21}};

static int group_of(const D3D12_HEAP_PROPERTIES *heap)
{
    if (heap->Type == D3D12_HEAP_TYPE_CUSTOM)
        return heap->MemoryPoolPreference == D3D12_MEMORY_POOL_L1 ? LOCAL : SHARED;
    return heap->Type == D3D12_HEAP_TYPE_DEFAULT ? LOCAL : SHARED;
}

static void remember(ID3D12Object *made, const D3D12_HEAP_PROPERTIES *heap, UINT64 bytes)
{
    struct note *note = malloc(sizeof(*note));

    if (!note)
        return;
    note->lpVtbl = &note_table;
    note->references = 1;
    note->group = group_of(heap);
    note->bytes = bytes;
    count(note->group, bytes);
    ID3D12Object_SetPrivateDataInterface(made, &note_key, (IUnknown *)note);
    note_release((IUnknown *)note);
}

/* ---- the functions that are replaced -------------------------------------------------------------------------------- */

static HRESULT STDMETHODCALLTYPE create_committed(ID3D12Device5 *device, const D3D12_HEAP_PROPERTIES *heap, D3D12_HEAP_FLAGS flags,
        const D3D12_RESOURCE_DESC *description, D3D12_RESOURCE_STATES state, const D3D12_CLEAR_VALUE *clear, REFIID iid, void **made)
{
    HRESULT hr = original.CreateCommittedResource(device, heap, flags, description, state, clear, iid, made);
    D3D12_RESOURCE_ALLOCATION_INFO size;

    if (SUCCEEDED(hr) && made)
    {
        original.GetResourceAllocationInfo(device, &size, 0, 1, description);
        remember(*made, heap, size.SizeInBytes);
    }
    return hr;
}

static HRESULT STDMETHODCALLTYPE create_heap(ID3D12Device5 *device, const D3D12_HEAP_DESC *description, REFIID iid, void **made)
{
    HRESULT hr = original.CreateHeap(device, description, iid, made);

    if (SUCCEEDED(hr) && made)
        remember(*made, &description->Properties, description->SizeInBytes);
    return hr;
}

BOOL memory_watch(ID3D12Device5 *device)
{
    ID3D12Device5Vtbl *table = (void *)device->lpVtbl;
    size_t page = sysconf(_SC_PAGESIZE);
    char *start = (char *)((size_t)table & ~(page - 1));

    if (table->CreateCommittedResource == create_committed)
        return TRUE;
    /* The table lies in libvkd3d's read-only data. */
    if (mprotect(start, (char *)(table + 1) - start, PROT_READ | PROT_WRITE))
        return FALSE;
    original = *table;
    table->CreateCommittedResource = create_committed;
    table->CreateHeap = create_heap;
    return TRUE;
}
