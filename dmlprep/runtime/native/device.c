/* The version of DirectML.dll, the first adapter and what Direct3D 12 offers on it. */
#define COBJMACROS
#include "device.h"
#include "wire.h"

#include <stdio.h>
#include <stdlib.h>

#include "winbase.h"
#include "winnls.h"
#include "winver.h"
#include "initguid.h"
#include "dxgi1_4.h"
#include "d3d12.h"

static void say_file_version(HMODULE module, const char *key)
{
    WCHAR path[MAX_PATH];
    VS_FIXEDFILEINFO *info;
    char text[64];
    DWORD size, handle;
    UINT length;
    void *data;

    if (!module || !GetModuleFileNameW(module, path, MAX_PATH) || !(size = GetFileVersionInfoSizeW(path, &handle)))
        return;
    if (!(data = malloc(size)))
        return;
    if (GetFileVersionInfoW(path, 0, size, data) && VerQueryValueW(data, L"\\", (void **)&info, &length))
    {
        snprintf(text, sizeof(text), "%u.%u.%u", HIWORD(info->dwFileVersionMS), LOWORD(info->dwFileVersionMS),
                HIWORD(info->dwFileVersionLS));
        say("device", key, text, NULL);
    }
    free(data);
}

static void say_adapter(IDXGIAdapter1 *adapter)
{
    DXGI_ADAPTER_DESC1 description;
    char text[256], number[32];

    if (FAILED(IDXGIAdapter1_GetDesc1(adapter, &description)))
        return;
    WideCharToMultiByte(CP_UTF8, 0, description.Description, -1, text, sizeof(text), NULL, NULL);
    say("device", "adapter", text, NULL);
    snprintf(number, sizeof(number), "%04x:%04x", description.VendorId, description.DeviceId);
    say("device", "adapter id", number, NULL);
}

static void say_traits(IUnknown *adapter)
{
    HRESULT(WINAPI * create)(IUnknown *, D3D_FEATURE_LEVEL, REFIID, void **);
    D3D12_FEATURE_DATA_D3D12_OPTIONS4 fp16 = {0};
    D3D12_FEATURE_DATA_SHADER_MODEL model = {D3D_SHADER_MODEL_6_2};
    HMODULE library = LoadLibraryA("d3d12.dll");
    ID3D12Device *device;
    char text[32];
    HRESULT hr;

    if (!library || !(create = (void *)GetProcAddress(library, "D3D12CreateDevice")))
        return;
    if (FAILED(hr = create(adapter, D3D_FEATURE_LEVEL_11_0, &IID_ID3D12Device, (void **)&device)))
    {
        snprintf(text, sizeof(text), "%08lX", (unsigned long)(DWORD)hr);
        say("device", "d3d12 error", text, NULL);
        return;
    }
    hr = ID3D12Device_CheckFeatureSupport(device, D3D12_FEATURE_D3D12_OPTIONS4, &fp16, sizeof(fp16));
    say("device", "native fp16", SUCCEEDED(hr) && fp16.Native16BitShaderOpsSupported ? "yes" : "no", NULL);
    if (SUCCEEDED(ID3D12Device_CheckFeatureSupport(device, D3D12_FEATURE_SHADER_MODEL, &model, sizeof(model))))
    {
        snprintf(text, sizeof(text), "%d.%d", model.HighestShaderModel >> 4, model.HighestShaderModel & 15);
        say("device", "shader model", text, NULL);
    }
    ID3D12Device_Release(device);
}

void say_device(HMODULE directml)
{
    HRESULT(WINAPI * create_factory)(REFIID, void **);
    HMODULE library = LoadLibraryA("dxgi.dll");
    IDXGIFactory1 *factory;
    IDXGIAdapter1 *adapter;

    say_file_version(directml, "directml");
    if (!library || !(create_factory = (void *)GetProcAddress(library, "CreateDXGIFactory1")))
        return;
    if (FAILED(create_factory(&IID_IDXGIFactory1, (void **)&factory)))
        return;
    if (SUCCEEDED(IDXGIFactory1_EnumAdapters1(factory, 0, &adapter)))
    {
        say_adapter(adapter);
        say_traits((IUnknown *)adapter);
        IDXGIAdapter1_Release(adapter);
    }
    IDXGIFactory1_Release(factory);
}
