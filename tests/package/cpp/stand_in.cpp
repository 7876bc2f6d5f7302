// A stand-in for onnxruntime.dll: the real one, real.dll next to it, without the functions of 1.24. The environment variable
// STAND_IN is what else differs, which no machine of the tests has:
//   removed   the third call of Run fails as if the GPU had gone away; later sessions work
//   memory    the third call of Run fails as if the GPU had no memory
//   no-dml    the DirectML provider is missing
//   npu, gpu  a vendor's provider for an NPU or a GPU, from a library "vendor.dll"; the CPU does its work
//   fails     the provider for an NPU does not take the model
#include <windows.h>
#include <onnxruntime_c_api.h>

#include <atomic>
#include <cstring>
#include <string>

static OrtApi own;
static const OrtApi* real;
static std::atomic<int> runs{0};
static bool registered = false;

static std::string mode() {
    char text[32] = {};
    GetEnvironmentVariableA("STAND_IN", text, sizeof text);
    return text;
}

static OrtStatus* ORT_API_CALL run(OrtSession* session, const OrtRunOptions* options, const char* const* names,
                                   const OrtValue* const* inputs, size_t count, const char* const* wanted,
                                   size_t outputs, OrtValue** answers) noexcept {
    const bool third = ++runs == 3;
    if (third && mode() == "removed")
        return real->CreateStatus(ORT_FAIL, "Non-zero status code: 887A0005 The GPU device instance has been suspended.");
    if (third && mode() == "memory")
        return real->CreateStatus(ORT_FAIL, "Non-zero status code: 8007000E Not enough memory resources are available.");
    return real->Run(session, options, names, inputs, count, wanted, outputs, answers);
}

static OrtStatus* ORT_API_CALL available(char*** names, int* count) noexcept {
    static char cpu[] = "CPUExecutionProvider";
    static char* all[] = {cpu};
    if (mode() != "no-dml")
        return real->GetAvailableProviders(names, count);
    *names = all;
    *count = 1;
    return nullptr;
}

static OrtStatus* ORT_API_CALL release(char** names, int count) noexcept {
    return mode() == "no-dml" ? nullptr : real->ReleaseAvailableProviders(names, count);
}

// Devices: numbers stand for them.
static const OrtEpDevice* device(std::size_t number) { return reinterpret_cast<const OrtEpDevice*>(number); }

static OrtStatus* ORT_API_CALL add_library(OrtEnv*, const char*, const wchar_t* path) noexcept {
    const std::wstring file = path;
    if (file.find(L"vendor.dll") == std::wstring::npos)
        return real->CreateStatus(ORT_FAIL, "Error loading the library");
    registered = true;
    return nullptr;
}

static OrtStatus* ORT_API_CALL devices(const OrtEnv*, const OrtEpDevice* const** all, size_t* count) noexcept {
    static const OrtEpDevice* const list[] = {device(1), device(2), device(3)};  // CPU, DirectML's GPU, the vendor's
    *all = list;
    *count = registered ? 3 : 2;
    return nullptr;
}

static const char* ORT_API_CALL name_of(const OrtEpDevice* one) noexcept {
    return one == device(1) ? "CPUExecutionProvider" : one == device(2) ? "DmlExecutionProvider" : "VendorExecutionProvider";
}

static const OrtHardwareDevice* ORT_API_CALL hardware(const OrtEpDevice* one) noexcept {
    return reinterpret_cast<const OrtHardwareDevice*>(one);
}

static OrtHardwareDeviceType ORT_API_CALL type_of(const OrtHardwareDevice* one) noexcept {
    const bool gpu = one == hardware(device(2)) || (one == hardware(device(3)) && mode() == "gpu");
    return gpu ? OrtHardwareDeviceType_GPU : one == hardware(device(1)) ? OrtHardwareDeviceType_CPU : OrtHardwareDeviceType_NPU;
}

static OrtStatus* ORT_API_CALL append(OrtSessionOptions*, OrtEnv*, const OrtEpDevice* const* list, size_t count,
                                      const char* const*, const char* const*, size_t) noexcept {
    if (count != 1 || list[0] != device(3))
        return real->CreateStatus(ORT_FAIL, "another device than the vendor's");
    return mode() == "fails" ? real->CreateStatus(ORT_FAIL, "the NPU does not take the model") : nullptr;
}

static const OrtApi* ORT_API_CALL get_api(uint32_t version) noexcept;
static const char* ORT_API_CALL get_version() noexcept { return "1.23.0"; }
static const OrtApiBase base = {get_api, get_version};

static const OrtApi* ORT_API_CALL get_api(uint32_t version) noexcept {
    using GetBase = const OrtApiBase*(ORT_API_CALL*)();
    HMODULE library = LoadLibraryA("C:\\checkout\\stand_in\\real.dll");
    const auto get = library ? reinterpret_cast<GetBase>(reinterpret_cast<void*>(GetProcAddress(library, "OrtGetApiBase"))) : nullptr;
    if (!get || version > ORT_API_VERSION)
        return nullptr;
    real = get()->GetApi(version);
    std::memcpy(&own, real, sizeof own);
    own.Run = run;
    own.GetAvailableProviders = available;
    own.ReleaseAvailableProviders = release;
    own.RegisterExecutionProviderLibrary = add_library;
    own.GetEpDevices = devices;
    own.EpDevice_EpName = name_of;
    own.EpDevice_Device = hardware;
    own.HardwareDevice_Type = type_of;
    own.SessionOptionsAppendExecutionProvider_V2 = append;
    return &own;
}

extern "C" __declspec(dllexport) const OrtApiBase* ORT_API_CALL OrtGetApiBase(void) noexcept { return &base; }
