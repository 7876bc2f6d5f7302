// The loader's use of onnxruntime.dll, DirectML and adapters. Link with dxgi. onnxruntime.dll is loaded from the program's own
// folder, never from System32, which has an old one.
#include "dmlprep_model_parts.h"

#include <dxgi1_6.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <set>

namespace dmlprep::detail {

const OrtApi* api = nullptr;
std::string runtime_version;

// ---- Adapters ----

namespace {

template <class Interface>
class Com {
public:
    Com() = default;
    ~Com() {
        if (pointer_)
            pointer_->Release();
    }
    Com(const Com&) = delete;
    Com& operator=(const Com&) = delete;
    Interface* operator->() const { return pointer_; }
    explicit operator bool() const { return pointer_ != nullptr; }
    void** out() { return reinterpret_cast<void**>(&pointer_); }
    Interface* get() const { return pointer_; }

private:
    Interface* pointer_ = nullptr;
};

struct Adapter {
    int number;
    std::string name;
    unsigned vendor;
    LUID luid;
    bool software;
};

std::vector<Adapter> adapters(IDXGIFactory1* factory) {
    std::vector<Adapter> found;
    for (UINT number = 0;; ++number) {
        Com<IDXGIAdapter1> adapter;
        DXGI_ADAPTER_DESC1 desc{};
        if (FAILED(factory->EnumAdapters1(number, reinterpret_cast<IDXGIAdapter1**>(adapter.out()))))
            return found;
        if (SUCCEEDED(adapter->GetDesc1(&desc)))
            found.push_back({static_cast<int>(number), narrow(desc.Description), desc.VendorId, desc.AdapterLuid,
                             (desc.Flags & DXGI_ADAPTER_FLAG_SOFTWARE) != 0});
    }
}

std::string lower(std::string text) {
    for (char& c : text)
        c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
}

int adapter_by_preference(IDXGIFactory1* factory, const std::vector<Adapter>& there, bool fastest) {
    Com<IDXGIFactory6> newer;
    if (FAILED(factory->QueryInterface(__uuidof(IDXGIFactory6), newer.out())))
        fail(Code::adapter_missing, "this Windows does not order adapters by preference: choose a number");
    const auto wanted = fastest ? DXGI_GPU_PREFERENCE_HIGH_PERFORMANCE : DXGI_GPU_PREFERENCE_MINIMUM_POWER;
    for (UINT place = 0;; ++place) {
        Com<IDXGIAdapter1> adapter;
        DXGI_ADAPTER_DESC1 desc{};
        if (FAILED(newer->EnumAdapterByGpuPreference(place, wanted, __uuidof(IDXGIAdapter1), adapter.out())))
            fail(Code::adapter_missing, "DXGI names no GPU for this preference");
        if (FAILED(adapter->GetDesc1(&desc)))
            continue;
        for (const Adapter& one : there)
            if (!one.software && std::memcmp(&one.luid, &desc.AdapterLuid, sizeof(LUID)) == 0)
                return one.number;
    }
}

int adapter_number(const std::string& adapter) {
    if (!adapter.empty() && adapter.size() < 4 && adapter.find_first_not_of("0123456789") == std::string::npos)
        return std::atoi(adapter.c_str());
    Com<IDXGIFactory1> factory;
    if (FAILED(CreateDXGIFactory1(__uuidof(IDXGIFactory1), factory.out())))
        fail(Code::adapter_missing, "DXGI does not answer");
    const std::vector<Adapter> there = adapters(factory.get());
    const std::string wanted = lower(adapter);
    if (wanted == "high_performance" || wanted == "minimum_power")
        return adapter_by_preference(factory.get(), there, wanted == "high_performance");
    // PCI ids of the PCI-SIG's list; Qualcomm's drivers for Windows give the ACPI id "QCOM".
    static const std::map<std::string, std::vector<unsigned>> vendors = {
        {"nvidia", {0x10DE}}, {"amd", {0x1002, 0x1022}}, {"intel", {0x8086}}, {"qualcomm", {0x4D4F4351, 0x5143}}};
    const auto vendor = vendors.find(wanted);
    std::vector<int> matching;
    std::string listed;
    for (const Adapter& one : there) {
        listed += (listed.empty() ? "" : ", ") + std::to_string(one.number) + " " + one.name;
        const bool fits = vendor != vendors.end()
                              ? std::count(vendor->second.begin(), vendor->second.end(), one.vendor) > 0
                              : lower(one.name).find(wanted) != std::string::npos;
        if (fits)
            matching.push_back(one.number);
    }
    if (matching.size() != 1)
        fail(Code::adapter_missing, std::to_string(matching.size()) + " adapters match '" + adapter + "'; there are: " + listed);
    return matching.front();
}

}  // namespace

// ---- Errors ----

void translated(const std::string& text) {
    for (const char* code : {"887A0005", "887A0006", "887A0007", "887A0020"})
        if (text.find(code) != std::string::npos)
            fail(Code::device_removed,
                 std::string("the GPU stopped answering (") + code +
                     "): close other programs that use it, wait a second and call reopen(). If it happens again, use "
                     "smaller inputs, disable_metacommands or another driver, or reopen(Device::cpu)");
    for (const char* sign : {"8007000E", "bad allocation", "Failed to allocate memory"})
        if (text.find(sign) != std::string::npos)
            fail(Code::out_of_memory, std::string("out of memory (") + sign +
                                          "): free other models, use smaller inputs, then call reopen(); or "
                                          "reopen(Device::cpu)");
    for (const char* code : {"887A0002", "887A0004", "C0262002"})
        if (text.find(code) != std::string::npos)
            fail(Code::adapter_missing,
                 std::string("the adapter cannot be used (") + code + "): choose another, or install its driver");
    fail(Code::failed, text);
}

void check(OrtStatus* status) {
    if (!status)
        return;
    const std::string text = api->GetErrorMessage(status);
    api->ReleaseStatus(status);
    translated(text);
}

// ---- Libraries ----

std::filesystem::path own_folder() {
    std::wstring name(MAX_PATH, L'\0');
    while (true) {
        const DWORD length = GetModuleFileNameW(nullptr, name.data(), static_cast<DWORD>(name.size()));
        if (length < name.size()) {
            name.resize(length);
            return std::filesystem::path(name).parent_path();
        }
        name.resize(name.size() * 2);
    }
}

namespace {

template <class Function>
Function function_of(HMODULE library, const char* name) {
    return library ? reinterpret_cast<Function>(reinterpret_cast<void*>(GetProcAddress(library, name))) : nullptr;
}

// Three functions of ONNX Runtime 1.24, by their places in OrtApi, which never change: older headers do not declare them.
struct NodesApi {
    OrtStatus*(ORT_API_CALL* parts)(const OrtSession*, const void* const** parts, std::size_t* count);
    OrtStatus*(ORT_API_CALL* provider_of)(const void* part, const char** name);
    OrtStatus*(ORT_API_CALL* nodes_of)(const void* part, const void* const** nodes, std::size_t* count);
};
constexpr std::uint32_t nodes_version = 24;
constexpr std::size_t nodes_place = 407;
#if ORT_API_VERSION >= 24
static_assert(offsetof(OrtApi, Session_GetEpGraphAssignmentInfo) == nodes_place * sizeof(void*));
#endif
const NodesApi* nodes_api = nullptr;  // null if the runtime is older

}  // namespace

std::mutex& session_lock() {
    static std::mutex mutex;
    return mutex;
}

OrtEnv* environment(const std::filesystem::path& chosen) {
    static OrtEnv* env = nullptr;  // as long as the process: ONNX Runtime has one
    if (env)
        return env;
    const std::filesystem::path folder = std::filesystem::absolute(chosen.empty() ? own_folder() : chosen);
    // ONNX Runtime asks for DirectML.dll by its name alone, so the one next to it must be in memory before.
    LoadLibraryExW((folder / L"DirectML.dll").c_str(), nullptr, LOAD_WITH_ALTERED_SEARCH_PATH);
    const HMODULE library =
        LoadLibraryExW((folder / L"onnxruntime.dll").c_str(), nullptr, LOAD_WITH_ALTERED_SEARCH_PATH);
    if (!library)
        fail(Code::runtime_missing, "no onnxruntime.dll can be loaded from " + narrow(folder.c_str()) +
                                        ": put it there with DirectML.dll, both of Microsoft.ML.OnnxRuntime.DirectML");
    const auto get_base = function_of<const OrtApiBase*(ORT_API_CALL*)()>(library, "OrtGetApiBase");
    if (!get_base)
        fail(Code::runtime_missing, "onnxruntime.dll is not ONNX Runtime");
    const OrtApiBase* base = get_base();
    runtime_version = base->GetVersionString();
    api = base->GetApi(ORT_API_VERSION);
    if (!api)
        fail(Code::runtime_missing, "onnxruntime.dll is " + runtime_version + ", older than the headers of this program");
    if (const OrtApi* newer = base->GetApi(nodes_version))
        nodes_api = reinterpret_cast<const NodesApi*>(reinterpret_cast<const void* const*>(newer) + nodes_place);
    check(api->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "dmlprep", &env));
    return env;
}

// ---- DirectML ----

const DmlApi& dml_api() {
    const void* table = nullptr;
    check(api->GetExecutionProviderApi("DML", ORT_API_VERSION, &table));
    return *static_cast<const DmlApi*>(table);
}

namespace {

// The part of DirectML.h that is needed, which is not in every SDK.
constexpr GUID iid_dml_device = {0x6dbd6437, 0x96fd, 0x423f, {0xa9, 0x8c, 0xae, 0x5e, 0x7c, 0x2a, 0x57, 0x3f}};
constexpr unsigned feature_level_2_0 = 0x2000;  // DML_FEATURE_LEVEL_2_0: the least that the provider needs
using CreateDmlDevice = HRESULT(WINAPI*)(ID3D12Device*, unsigned flags, unsigned level, const GUID&, void**);

bool has_provider(const std::string& name) {
    char** names = nullptr;
    int count = 0;
    check(api->GetAvailableProviders(&names, &count));
    const bool has = std::count(names, names + count, name) > 0;
    check(api->ReleaseAvailableProviders(names, count));
    return has;
}

// DirectML on the app's own device and queue.
void append_own_device(OrtSessionOptions* settings, const Options& options) {
    if (!options.d3d12_device || !options.d3d12_queue)
        fail(Code::bad_input, "a device needs its queue: set both d3d12_device and d3d12_queue");
    if (options.disable_metacommands)
        fail(Code::bad_input, "metacommands cannot be disabled on a device of the app");
    // The DirectML.dll that is in memory already.
    const auto create = function_of<CreateDmlDevice>(LoadLibraryW(L"DirectML.dll"), "DMLCreateDevice1");
    if (!create)
        fail(Code::runtime_missing, "DirectML.dll has no DMLCreateDevice1: put the one of the package next to onnxruntime.dll");
    Com<IUnknown> device;
    const HRESULT result = create(options.d3d12_device, 0, feature_level_2_0, iid_dml_device, device.out());
    if (FAILED(result)) {
        char code[16];
        std::snprintf(code, sizeof code, "%08lX", static_cast<unsigned long>(result));
        translated(std::string("DMLCreateDevice1 failed: ") + code);
    }
    check(dml_api().append_own(settings, device.get(), options.d3d12_queue));  // keeps references of its own
}

}  // namespace

void append_directml(OrtSessionOptions* settings, const Options& options) {
    if (!has_provider("DmlExecutionProvider"))
        fail(Code::runtime_missing, "onnxruntime.dll " + runtime_version +
                                        " has no DirectML: use the one of Microsoft.ML.OnnxRuntime.DirectML");
    if (!LoadLibraryW(L"DirectML.dll"))  // the one in memory, if there is one; without any, the provider ends the process
        fail(Code::runtime_missing, "no DirectML.dll can be loaded: put the one of Microsoft.AI.DirectML next to onnxruntime.dll");
    check(api->DisableMemPattern(settings));
    if (options.d3d12_device || options.d3d12_queue) {
        append_own_device(settings, options);
        return;
    }
    const std::string number = std::to_string(adapter_number(options.adapter));
    const char* keys[] = {"device_id", "disable_metacommands"};
    const char* values[] = {number.c_str(), "true"};
    check(api->SessionOptionsAppendExecutionProvider(settings, "DML", keys, values, options.disable_metacommands ? 2 : 1));
}

// ---- Providers of vendors ----

#if ORT_API_VERSION >= 22

const OrtEpDevice* vendor_device(OrtEnv* env, const Options& options, std::string& provider) {
    static std::set<std::string> registered;
    for (const auto& [name, path] : options.libraries)
        if (!registered.count(name)) {
            check(api->RegisterExecutionProviderLibrary(env, name.c_str(), path.c_str()));
            registered.insert(name);
        }
    const OrtEpDevice* const* devices = nullptr;
    std::size_t count = 0;
    check(api->GetEpDevices(env, &devices, &count));
    const auto npu = OrtHardwareDeviceType_NPU, gpu = OrtHardwareDeviceType_GPU;
    for (const auto type : {options.prefer == Prefer::npu ? npu : gpu, options.prefer == Prefer::npu ? gpu : npu})
        for (std::size_t i = 0; i < count; ++i) {
            provider = api->EpDevice_EpName(devices[i]);
            if (api->HardwareDevice_Type(api->EpDevice_Device(devices[i])) == type && provider != "DmlExecutionProvider" &&
                provider != "CPUExecutionProvider")
                return devices[i];
        }
    fail(Code::adapter_missing, "no provider of a vendor has an NPU or GPU here: pass its DLL in Options::libraries");
}

void append_vendor(OrtEnv* env, OrtSessionOptions* settings, const OrtEpDevice* device) {
    check(api->SessionOptionsAppendExecutionProvider_V2(settings, env, &device, 1, nullptr, nullptr, 0));
}

#else

const OrtEpDevice* vendor_device(OrtEnv*, const Options&, std::string&) {
    fail(Code::runtime_missing, "providers of vendors need the headers of ONNX Runtime 1.22 or newer");
}

void append_vendor(OrtEnv*, OrtSessionOptions*, const OrtEpDevice*) {}

#endif

// ---- Which provider runs the nodes ----

void record_nodes(OrtSessionOptions* settings) {
    check(api->AddSessionConfigEntry(settings, "session.record_ep_graph_assignment_info", "1"));
}

std::string nodes_of(const OrtSession* session, const std::string& provider) {
    if (!nodes_api)
        return "ONNX Runtime " + runtime_version + " created the session with " + provider +
               "; releases before 1.24 do not report its nodes";
    const void* const* parts = nullptr;
    std::size_t count = 0, all = 0, own = 0;
    check(nodes_api->parts(session, &parts, &count));
    for (std::size_t i = 0; i < count; ++i) {
        const char* name = nullptr;
        const void* const* nodes = nullptr;
        std::size_t number = 0;
        check(nodes_api->provider_of(parts[i], &name));
        check(nodes_api->nodes_of(parts[i], &nodes, &number));
        all += number;
        own += name == provider ? number : 0;
    }
    if (all && !own)
        fail(Code::failed, "ONNX Runtime assigned none of " + std::to_string(all) + " nodes to " + provider);
    return "ONNX Runtime assigned " + std::to_string(own) + " of " + std::to_string(all) + " nodes to " + provider;
}

}  // namespace dmlprep::detail
