// See dmlprep_model.h. Link with dxgi and bcrypt; onnxruntime.dll is loaded from the program's own folder, never from
// System32, which has an old one.
#define NOMINMAX
#define WIN32_LEAN_AND_MEAN
#include "dmlprep_model.h"

#include <windows.h>
#include <bcrypt.h>
#if defined(__MINGW32__)
#define WIDL_EXPLICIT_AGGREGATE_RETURNS  // GetDesc, as Windows has it
#endif
#include <d3d12.h>
#include <dxgi1_6.h>
#include <onnxruntime_c_api.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

namespace dmlprep {
namespace {

constexpr char contract_name[] = "model.json";
constexpr char digest_name[] = "model.json.sha256";
constexpr int contract_format = 1;

// Inside this file errors are thrown; none leaves it.
struct Error : std::exception {
    explicit Error(Status found) : status(std::move(found)) {}
    const char* what() const noexcept override { return status.message.c_str(); }
    Status status;
};

[[noreturn]] void fail(Code code, std::string message) { throw Error({code, std::move(message), {}}); }

[[noreturn]] void damaged(const std::string& file, const std::string& what) {
    throw Error({Code::package_damaged, file + " " + what + ": repair the installation", file});
}

// Sessions of DirectML are neither made nor run side by side: some drivers crash, even for two different sessions.
std::recursive_mutex& one_at_a_time() {
    static std::recursive_mutex mutex;
    return mutex;
}

template <class Work>
Status guarded(Work&& work) noexcept {
    try {
        work();
        return {};
    } catch (const Error& error) {
        return error.status;
    } catch (const std::bad_alloc&) {
        return {Code::out_of_memory, "the system is out of memory", {}};
    } catch (const std::exception& error) {
        return {Code::failed, error.what(), {}};
    } catch (...) {
        return {Code::failed, "an unknown error", {}};
    }
}

// ---- JSON: as much of it as a contract has ----

struct Json {
    enum Kind { null, boolean, number, text, list, object } kind = null;
    double value = 0;
    std::string string;
    std::vector<Json> items;
    std::vector<std::pair<std::string, Json>> members;

    const Json& operator[](const char* name) const {
        for (const auto& member : members)
            if (member.first == name)
                return member.second;
        damaged(contract_name, std::string("has no ") + name);
    }

    // Null where there is none, for what older contracts do not have.
    const Json& or_null(const char* name) const {
        static const Json nothing;
        for (const auto& member : members)
            if (member.first == name)
                return member.second;
        return nothing;
    }
};

class JsonReader {
public:
    explicit JsonReader(const std::string& text) : at_(text.data()), end_(text.data() + text.size()) {}

    Json document() {
        Json found = value(0);
        if (peek() != 0)
            bad();
        return found;
    }

private:
    static constexpr int deepest = 32;

    [[noreturn]] static void bad() { damaged(contract_name, "is not JSON"); }

    char peek() {
        while (at_ < end_ && std::strchr(" \t\r\n", *at_))
            ++at_;
        return at_ < end_ ? *at_ : 0;
    }

    bool taken(char wanted) {
        if (peek() != wanted)
            return false;
        ++at_;
        return true;
    }

    bool word(const char* wanted) {
        const std::size_t length = std::strlen(wanted);
        if (static_cast<std::size_t>(end_ - at_) < length || std::strncmp(at_, wanted, length) != 0)
            return false;
        at_ += length;
        return true;
    }

    Json value(int depth) {
        Json found;
        if (depth > deepest)
            bad();
        const char first = peek();
        if (first == '{' || first == '[') {
            ++at_;
            const char last = first == '{' ? '}' : ']';
            found.kind = first == '{' ? Json::object : Json::list;
            while (!taken(last)) {
                if ((found.members.size() || found.items.size()) && !taken(','))
                    bad();
                if (first == '{') {
                    peek();
                    std::string name = quoted();
                    if (!taken(':'))
                        bad();
                    found.members.emplace_back(std::move(name), value(depth + 1));
                } else {
                    found.items.push_back(value(depth + 1));
                }
            }
        } else if (first == '"') {
            found.kind = Json::text;
            found.string = quoted();
        } else if (word("true") || word("false")) {
            found.kind = Json::boolean;
            found.value = first == 't';
        } else if (!word("null")) {
            found.kind = Json::number;
            const std::string digits(at_, std::find_if(at_, end_, [](char c) { return !std::strchr("+-.0123456789eE", c); }));
            char* rest = nullptr;
            found.value = std::strtod(digits.c_str(), &rest);
            if (digits.empty() || *rest)
                bad();
            at_ += digits.size();
        }
        return found;
    }

    unsigned hex4() {
        unsigned found = 0;
        for (int i = 0; i < 4; ++i, ++at_) {
            if (at_ >= end_ || !std::isxdigit(static_cast<unsigned char>(*at_)))
                bad();
            found = found * 16 + static_cast<unsigned>(std::isdigit(static_cast<unsigned char>(*at_)) ? *at_ - '0' : (*at_ | 32) - 'a' + 10);
        }
        return found;
    }

    std::string quoted() {
        std::string found;
        if (at_ >= end_ || *at_++ != '"')
            bad();
        while (true) {
            if (at_ >= end_)
                bad();
            const char c = *at_++;
            if (c == '"')
                return found;
            if (c != '\\') {
                found += c;
                continue;
            }
            if (at_ >= end_)
                bad();
            const char escape = *at_++;
            static constexpr char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
            if (const char* place = std::strchr(from, escape); place && escape) {
                found += to[place - from];
            } else if (escape == 'u') {
                unsigned point = hex4();
                if (point >= 0xD800 && point < 0xDC00 && word("\\u"))
                    point = 0x10000 + ((point - 0xD800) << 10) + (hex4() - 0xDC00);
                append_utf8(found, point);
            } else {
                bad();
            }
        }
    }

    static void append_utf8(std::string& text, unsigned point) {
        if (point < 0x80) {
            text += static_cast<char>(point);
            return;
        }
        const int more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
        text += static_cast<char>((0xF00 >> more & 0xFF) | point >> 6 * more);
        for (int i = more - 1; i >= 0; --i)
            text += static_cast<char>(0x80 | (point >> 6 * i & 0x3F));
    }

    const char* at_;
    const char* end_;
};

// ---- Windows ----

std::wstring wide(const std::string& text) {
    const int length = MultiByteToWideChar(CP_UTF8, 0, text.data(), static_cast<int>(text.size()), nullptr, 0);
    std::wstring found(static_cast<std::size_t>(length), L'\0');
    MultiByteToWideChar(CP_UTF8, 0, text.data(), static_cast<int>(text.size()), found.data(), length);
    return found;
}

std::string narrow(const wchar_t* text) {
    const int length = WideCharToMultiByte(CP_UTF8, 0, text, -1, nullptr, 0, nullptr, nullptr);
    std::string found(static_cast<std::size_t>(std::max(length, 1)), '\0');
    WideCharToMultiByte(CP_UTF8, 0, text, -1, found.data(), length, nullptr, nullptr);
    found.resize(found.size() - 1);
    return found;
}

class Sha256 {
public:
    Sha256() {
        if (BCryptOpenAlgorithmProvider(&algorithm_, BCRYPT_SHA256_ALGORITHM, nullptr, 0) < 0 ||
            BCryptCreateHash(algorithm_, &hash_, nullptr, 0, nullptr, 0, 0) < 0)
            fail(Code::failed, "Windows has no SHA-256");
    }
    ~Sha256() {
        if (hash_)
            BCryptDestroyHash(hash_);
        if (algorithm_)
            BCryptCloseAlgorithmProvider(algorithm_, 0);
    }
    Sha256(const Sha256&) = delete;
    Sha256& operator=(const Sha256&) = delete;

    void add(const void* data, std::size_t size) {
        auto* at = static_cast<const unsigned char*>(data);
        while (size) {
            const ULONG piece = static_cast<ULONG>(std::min<std::size_t>(size, 1u << 30));
            if (BCryptHashData(hash_, const_cast<PUCHAR>(at), piece, 0) < 0)
                fail(Code::failed, "SHA-256 failed");
            at += piece;
            size -= piece;
        }
    }

    std::string hex() {
        unsigned char raw[32];
        if (BCryptFinishHash(hash_, raw, sizeof raw, 0) < 0)
            fail(Code::failed, "SHA-256 failed");
        std::string found;
        for (unsigned char byte : raw) {
            found += "0123456789abcdef"[byte >> 4];
            found += "0123456789abcdef"[byte & 15];
        }
        return found;
    }

private:
    BCRYPT_ALG_HANDLE algorithm_ = nullptr;
    BCRYPT_HASH_HANDLE hash_ = nullptr;
};

// The part of DirectML.h and dml_provider_factory.h that is needed; both are fixed interfaces, and not in every SDK.
constexpr GUID iid_dml_device = {0x6dbd6437, 0x96fd, 0x423f, {0xa9, 0x8c, 0xae, 0x5e, 0x7c, 0x2a, 0x57, 0x3f}};
constexpr unsigned feature_level_2_0 = 0x2000;  // DML_FEATURE_LEVEL_2_0: the least that is asked for
using CreateDmlDevice = HRESULT(WINAPI*)(ID3D12Device*, unsigned flags, unsigned level, const GUID&, void**);

struct DmlApi {
    OrtStatus*(ORT_API_CALL* append)(OrtSessionOptions*, int device_id);
    OrtStatus*(ORT_API_CALL* append_own)(OrtSessionOptions*, IUnknown* dml_device, ID3D12CommandQueue*);
    OrtStatus*(ORT_API_CALL* create_allocation)(ID3D12Resource*, void** allocation);
    OrtStatus*(ORT_API_CALL* free_allocation)(void* allocation);
    OrtStatus*(ORT_API_CALL* resource_of)(OrtAllocator*, void* allocation, ID3D12Resource**);
};

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

int adapter_by_preference(IDXGIFactory1* factory, const std::vector<Adapter>& there, Preference preference) {
    Com<IDXGIFactory6> newer;
    if (FAILED(factory->QueryInterface(__uuidof(IDXGIFactory6), newer.out())))
        fail(Code::adapter_missing, "this Windows does not order adapters by preference: choose a number");
    const auto wanted = preference == Preference::high_performance ? DXGI_GPU_PREFERENCE_HIGH_PERFORMANCE
                                                                   : DXGI_GPU_PREFERENCE_MINIMUM_POWER;
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

int adapter_number(const Options& options) {
    if (options.adapter_name.empty() && options.preference == Preference::none)
        return options.adapter;
    Com<IDXGIFactory1> factory;
    if (FAILED(CreateDXGIFactory1(__uuidof(IDXGIFactory1), factory.out())))
        fail(Code::adapter_missing, "DXGI does not answer");
    IDXGIFactory1* own = factory.get();
    const std::vector<Adapter> there = adapters(own);
    if (options.adapter_name.empty())
        return adapter_by_preference(own, there, options.preference);
    // PCI ids of the PCI-SIG's list; Qualcomm's drivers for Windows give the ACPI id "QCOM".
    static const std::map<std::string, std::vector<unsigned>> vendors = {
        {"nvidia", {0x10DE}}, {"amd", {0x1002, 0x1022}}, {"intel", {0x8086}}, {"qualcomm", {0x4D4F4351, 0x5143}}};
    const std::string wanted = lower(options.adapter_name);
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
        fail(Code::adapter_missing, std::to_string(matching.size()) + " adapters match '" + options.adapter_name +
                                        "'; there are: " + listed);
    return matching.front();
}

// ---- ONNX Runtime ----

const OrtApi* api = nullptr;
std::string runtime_version;

[[noreturn]] void translated(const std::string& text) {
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

template <class Object>
class Owned {
public:
    using Release = void(ORT_API_CALL*)(Object*);
    explicit Owned(Release release) : release_(release) {}
    ~Owned() { reset(); }
    Owned(const Owned&) = delete;
    Owned& operator=(const Owned&) = delete;
    Object** out() {
        reset();
        return &object_;
    }
    Object* get() const { return object_; }
    void reset() {
        if (object_)
            release_(std::exchange(object_, nullptr));
    }

private:
    Release release_;
    Object* object_ = nullptr;
};

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

OrtEnv* environment(const std::filesystem::path& chosen) {
    static OrtEnv* made = nullptr;  // as long as the process: ONNX Runtime has one
    if (made)
        return made;
    const std::filesystem::path folder = std::filesystem::absolute(chosen.empty() ? own_folder() : chosen);
    // ONNX Runtime asks for DirectML.dll by its name alone: the one beside it must be in memory before.
    LoadLibraryExW((folder / L"DirectML.dll").c_str(), nullptr, LOAD_WITH_ALTERED_SEARCH_PATH);
    const std::filesystem::path file = folder / L"onnxruntime.dll";
    HMODULE library = LoadLibraryExW(file.c_str(), nullptr, LOAD_WITH_ALTERED_SEARCH_PATH);
    if (!library)
        fail(Code::runtime_missing, "no onnxruntime.dll can be loaded from " + narrow(folder.c_str()) +
                                        ": put it there with DirectML.dll, both of Microsoft.ML.OnnxRuntime.DirectML");
    using GetBase = const OrtApiBase*(ORT_API_CALL*)();
    const auto base = reinterpret_cast<GetBase>(reinterpret_cast<void*>(GetProcAddress(library, "OrtGetApiBase")));
    if (!base)
        fail(Code::runtime_missing, "onnxruntime.dll is not ONNX Runtime");
    runtime_version = base()->GetVersionString();
    const OrtApi* found = base()->GetApi(ORT_API_VERSION);
    if (!found)
        fail(Code::runtime_missing, "onnxruntime.dll is " + runtime_version + ", older than the headers of this program");
    api = found;
    check(api->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "dmlprep", &made));
    return made;
}

const DmlApi& dml_api() {
    const void* found = nullptr;
    check(api->GetExecutionProviderApi("DML", ORT_API_VERSION, &found));
    return *static_cast<const DmlApi*>(found);
}

// DirectML on the app's own device and queue.
void append_own_device(OrtSessionOptions* settings, const Options& options) {
    if (!options.d3d12_device || !options.d3d12_queue)
        fail(Code::bad_input, "a device and a queue go together");
    if (options.disable_metacommands)
        fail(Code::bad_input, "metacommands cannot be switched off on a device of the app");
    HMODULE library = LoadLibraryW(L"DirectML.dll");  // the one that is in memory already
    const auto create = library ? reinterpret_cast<CreateDmlDevice>(reinterpret_cast<void*>(GetProcAddress(library, "DMLCreateDevice1"))) : nullptr;
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

struct TypeRow {
    const char* name;
    Type type;
    ONNXTensorElementDataType element;
    std::size_t size;
};

constexpr TypeRow types[] = {
    {"float16", Type::float16, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16, 2},
    {"float32", Type::float32, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, 4},
    {"float64", Type::float64, ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE, 8},
    {"int8", Type::int8, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8, 1},
    {"int16", Type::int16, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16, 2},
    {"int32", Type::int32, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32, 4},
    {"int64", Type::int64, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, 8},
    {"uint8", Type::uint8, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8, 1},
    {"uint16", Type::uint16, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16, 2},
    {"uint32", Type::uint32, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32, 4},
    {"uint64", Type::uint64, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64, 8},
    {"bool", Type::boolean, ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL, 1},
};

const TypeRow& row_of(Type type) {
    for (const TypeRow& row : types)
        if (row.type == type)
            return row;
    fail(Code::bad_input, "a tensor has no element type");
}

TensorInfo tensor_info(const Json& one) {
    TensorInfo found;
    found.name = one["name"].string;
    for (const TypeRow& row : types)
        if (one["type"].string == row.name)
            found.type = row.type;
    if (found.type == Type::none)
        fail(Code::failed, "'" + found.name + "' is " + one["type"].string + ", which this loader does not support");
    for (const Json& size : one["shape"].items) {
        found.shape.push_back(size.kind == Json::number ? static_cast<std::int64_t>(size.value) : -1);
        found.free_names.push_back(size.kind == Json::number ? std::string() : size.string);
    }
    found.layout = one["layout"].string;
    found.meaning = one.or_null("meaning").string;
    found.colour = one.or_null("picture").or_null("colour").string;
    const std::vector<Json>& range = one.or_null("range").items;
    found.has_range = range.size() == 2;
    if (found.has_range) {
        found.low = range[0].value;
        found.high = range[1].value;
    }
    found.bytes = static_cast<std::size_t>(one["bytes"].value);
    found.gpu_bytes = static_cast<std::size_t>(one["gpu_bytes"].value);
    return found;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
    std::string found;
    for (std::int64_t size : shape)
        found += (found.empty() ? "" : " x ") + (size < 0 ? std::string("?") : std::to_string(size));
    return found.empty() ? "a scalar" : found;
}

bool older(const std::string& version, const std::string& least) {
    unsigned have[2] = {}, want[2] = {};
    std::sscanf(version.c_str(), "%u.%u", &have[0], &have[1]);
    std::sscanf(least.c_str(), "%u.%u", &want[0], &want[1]);
    return std::lexicographical_compare(have, have + 2, want, want + 2);
}

}  // namespace

std::size_t size_of(Type type) noexcept {
    for (const TypeRow& row : types)
        if (row.type == type)
            return row.size;
    return 0;
}

namespace {

// A buffer of the app as ONNX Runtime sees it.
class Bound {
public:
    Bound(ID3D12Resource* buffer, const TensorInfo& info) : buffer_(buffer), value_(api->ReleaseValue) {
        buffer_->AddRef();
        try {
            Owned<OrtMemoryInfo> memory(api->ReleaseMemoryInfo);
            check(api->CreateMemoryInfo("DML", OrtDeviceAllocator, 0, OrtMemTypeDefault, memory.out()));
            check(dml_api().create_allocation(buffer, &allocation_));
            check(api->CreateTensorWithDataAsOrtValue(memory.get(), allocation_, info.bytes, info.shape.data(), info.shape.size(),
                                                      row_of(info.type).element, value_.out()));
        } catch (...) {
            release();
            throw;
        }
    }
    ~Bound() { release(); }
    Bound(const Bound&) = delete;
    Bound& operator=(const Bound&) = delete;
    const OrtValue* value() const { return value_.get(); }

private:
    void release() {
        value_.reset();
        if (allocation_)
            if (OrtStatus* status = dml_api().free_allocation(std::exchange(allocation_, nullptr)))
                api->ReleaseStatus(status);
        buffer_->Release();
    }

    ID3D12Resource* buffer_;
    void* allocation_ = nullptr;
    Owned<OrtValue> value_;
};

// A session, and the buffers that are bound to it.
class Loaded {
public:
    Loaded() : session_(api->ReleaseSession) {}
    ~Loaded() { settle(); }
    Loaded(const Loaded&) = delete;
    Loaded& operator=(const Loaded&) = delete;

    OrtSession** out() { return session_.out(); }
    OrtSession* session() const { return session_.get(); }

    // The GPU may still work on the buffers of the last run.
    void settle() {
        if (in_flight_ && binding_)
            if (OrtStatus* status = api->SynchronizeBoundOutputs(binding_->get()))
                api->ReleaseStatus(status);  // a GPU that went away works on nothing
        in_flight_ = false;
    }

    void bind(const TensorInfo& info, bool input, ID3D12Resource* buffer) {
        if (!binding_) {
            binding_.emplace(api->ReleaseIoBinding);
            check(api->CreateIoBinding(session(), binding_->out()));
        }
        settle();
        auto made = std::make_unique<Bound>(buffer, info);
        check(input ? api->BindInput(binding_->get(), info.name.c_str(), made->value())
                    : api->BindOutput(binding_->get(), info.name.c_str(), made->value()));
        bound_[info.name] = std::move(made);
    }

    bool has(const std::string& name) const { return bound_.count(name) > 0; }

    void run_bound() {
        in_flight_ = true;
        check(api->RunWithBinding(session(), nullptr, binding_->get()));
    }

private:
    // What is bound goes before the session that it is bound to: members go from the last to the first.
    Owned<OrtSession> session_;
    std::map<std::string, std::unique_ptr<Bound>> bound_;
    std::optional<Owned<OrtIoBinding>> binding_;
    bool in_flight_ = false;
};

double elements(const Json& bucket) {
    double found = 1;
    for (const auto& [name, size] : bucket["sizes"].members)
        found *= size.value;
    return found;
}

template <class Names>
std::string listed(const Names& all) {
    std::string found;
    for (const std::string& one : all)
        found += (found.empty() ? "" : ", ") + one;
    return found;
}

[[noreturn]] void no_buckets() {
    fail(Code::bad_input, "the package has no buckets: its model has the sizes of its contract");
}

// The bucket of exactly these sizes; else, of those that are as large in every dimension, that of fewest elements.
const Json& choose(const std::vector<Json>& buckets, const Sizes& sizes, Choice& choice) {
    if (buckets.empty())
        no_buckets();
    std::vector<std::string> known, asked, names;
    for (const auto& [name, size] : buckets.front()["sizes"].members)
        known.push_back(name);
    for (const auto& [name, size] : sizes)
        if (std::count(known.begin(), known.end(), name) == 0)
            fail(Code::bad_input, "the buckets have no dimension '" + name + "'; they have: " + listed(known));
    for (const std::string& name : known)
        if (!sizes.count(name))
            fail(Code::bad_input, "the size of '" + name + "' is missing: the buckets differ in " + listed(known));
    for (const std::string& name : known) {
        asked.push_back(name + "=" + std::to_string(sizes.at(name)));
        if (sizes.at(name) < 1)
            fail(Code::bad_input, "the size of '" + name + "' is " + std::to_string(sizes.at(name)) +
                                      ", but must be a whole number of at least 1");
    }
    const Json* found = nullptr;
    for (const Json& one : buckets) {
        names.push_back(one["name"].string);
        const bool room = std::all_of(known.begin(), known.end(), [&](const std::string& name) {
            return one["sizes"][name.c_str()].value >= static_cast<double>(sizes.at(name));
        });
        if (room && (!found || elements(one) < elements(*found)))
            found = &one;
    }
    if (!found)
        fail(Code::bad_input, "no bucket has room for " + listed(asked) + "; there are: " + listed(names));
    choice = {(*found)["name"].string, {}, {}};
    for (const std::string& name : known) {
        const auto size = static_cast<std::int64_t>((*found)["sizes"][name.c_str()].value);
        choice.sizes[name] = size;
        if (size > sizes.at(name))
            choice.padding[name] = size - sizes.at(name);
    }
    return *found;
}

}  // namespace

struct Model::Inner {
    std::filesystem::path folder;
    Options options;
    Json contract;
    std::map<std::string, std::unique_ptr<Loaded>> sessions;  // by bucket; "" in a package without buckets
    std::optional<Status> lost;
    Device device = Device::cpu;
    std::string notice;

    // What is chosen: the contract or one of its buckets.
    struct Chosen {
        const Json* part = nullptr;
        Choice choice;
        Sizes free;  // sizes of dimensions that the model leaves free
        std::vector<TensorInfo> inputs, outputs;
    } now;

    bool read_file(const std::string& name, std::vector<std::uint8_t>& bytes) const {
        if (options.read)
            return options.read(name, bytes);
        std::ifstream file(folder / wide(name), std::ios::binary | std::ios::ate);
        if (!file)
            return false;
        bytes.resize(static_cast<std::size_t>(file.tellg()));
        file.seekg(0);
        return bytes.empty() || static_cast<bool>(file.read(reinterpret_cast<char*>(bytes.data()),
                                                            static_cast<std::streamsize>(bytes.size())));
    }

    std::vector<std::uint8_t> needed(const std::string& name) const {
        std::vector<std::uint8_t> bytes;
        if (!read_file(name, bytes))
            damaged(name, "is missing");
        return bytes;
    }

    void read_contract() {
        const std::vector<std::uint8_t> raw = needed(contract_name), said = needed(digest_name);
        Sha256 hash;
        hash.add(raw.data(), raw.size());
        if (std::string(said.begin(), said.end()) != hash.hex() + "  " + contract_name + "\n")
            damaged(contract_name, std::string("does not match ") + digest_name);
        contract = JsonReader(std::string(raw.begin(), raw.end())).document();
        if (contract["format"].value != contract_format)
            damaged(contract_name, "has a format that this loader does not read");
        now = wanted(options.sizes);
    }

    const std::vector<Json>& buckets() const { return contract.or_null("buckets").items; }

    // The model of the package; of its buckets the one for these sizes, the first one without any.
    Chosen wanted(const Sizes& sizes) const {
        Chosen found;
        found.part = &contract;
        found.free = sizes;
        if (!buckets().empty()) {
            Sizes own;
            for (const auto& [name, size] : buckets().front()["sizes"].members)
                if (auto given = found.free.extract(name); !given.empty())
                    own.insert(std::move(given));
            if (own.empty())
                for (const auto& [name, size] : buckets().front()["sizes"].members)
                    own[name] = static_cast<std::int64_t>(size.value);
            found.part = &dmlprep::choose(buckets(), own, found.choice);
        }
        for (const Json& one : (*found.part)["inputs"].items)
            found.inputs.push_back(tensor_info(one));
        for (const Json& one : (*found.part)["outputs"].items)
            found.outputs.push_back(tensor_info(one));
        return found;
    }

    void take(const Sizes& sizes) {
        const std::lock_guard<std::recursive_mutex> alone(one_at_a_time());
        if (buckets().empty())
            no_buckets();
        Chosen before = wanted(sizes);
        demand_open();
        std::swap(now, before);
        try {
            if (!sessions.count(now.choice.bucket))
                open_on(device, checked());
        } catch (...) {
            sessions.erase(now.choice.bucket);
            std::swap(now, before);
            throw;
        }
    }

    void demand_open() const {
        if (lost)
            throw Error(*lost);
        if (sessions.empty())
            fail(Code::failed, "the model is closed: call reopen()");
    }

    Loaded& loaded() { return *sessions.at(now.choice.bucket); }

    // Every file as the contract has it; the bytes of those that the session is made from.
    std::map<std::string, std::vector<std::uint8_t>> checked() const {
        std::map<std::string, std::vector<std::uint8_t>> kept;
        const Json& model = (*now.part)["model"];
        for (const auto& [name, entry] : contract["files"].members) {
            bool data = false;
            for (const Json& one : model["data"].items)
                data = data || one.string == name;
            const bool wanted = data || name == model["file"].string;
            std::error_code ignored;
            if (!wanted && (options.read || !std::filesystem::is_regular_file(folder / wide(name), ignored)))
                continue;  // what an app need not ship: sources, the README
            check_file(name, entry, wanted && !(data && !options.read), kept);
        }
        return kept;
    }

    void check_file(const std::string& name, const Json& entry, bool keep,
                    std::map<std::string, std::vector<std::uint8_t>>& kept) const {
        Sha256 hash;
        std::uint64_t size = 0;
        if (keep || options.read) {
            std::vector<std::uint8_t> bytes = needed(name);
            hash.add(bytes.data(), bytes.size());
            size = bytes.size();
            kept[name] = std::move(bytes);
        } else {
            std::ifstream file(folder / wide(name), std::ios::binary);
            if (!file)
                damaged(name, "is missing");
            std::vector<char> piece(1 << 20);
            while (file.read(piece.data(), static_cast<std::streamsize>(piece.size())) || file.gcount()) {
                hash.add(piece.data(), static_cast<std::size_t>(file.gcount()));
                size += static_cast<std::uint64_t>(file.gcount());
            }
        }
        if (size != static_cast<std::uint64_t>(entry["bytes"].value))
            damaged(name, "has " + std::to_string(size) + " bytes, another number than in " + contract_name);
        if (hash.hex() != entry["sha256"].string)
            damaged(name, std::string("was changed: its SHA-256 is not the one in ") + contract_name);
    }

    void open(Device wanted) {
        const std::lock_guard<std::recursive_mutex> alone(one_at_a_time());
        sessions.clear();
        lost.reset();
        notice.clear();
        const auto files = checked();
        try {
            if (wanted != Device::cpu) {
                open_on(Device::directml, files);
                return;
            }
        } catch (const Error& error) {
            if (wanted != Device::directml_or_cpu)
                throw;
            sessions.clear();
            notice = std::string("DirectML is not available: the model runs on the CPU, which is slower: ") + error.what();
        }
        open_on(Device::cpu, files);
    }

    void open_on(Device where, const std::map<std::string, std::vector<std::uint8_t>>& files) {
        OrtEnv* env = environment(options.runtime);
        const std::string& least = (*now.part)["target"]["lowest_onnxruntime"].string;
        if (older(runtime_version, least))
            fail(Code::runtime_missing, "onnxruntime.dll is " + runtime_version + ", older than " + least +
                                            ", the oldest version for this model");
        Owned<OrtSessionOptions> settings(api->ReleaseSessionOptions);
        check(api->CreateSessionOptions(settings.out()));
        check(api->SetSessionExecutionMode(settings.get(), ORT_SEQUENTIAL));
        check(api->SetSessionLogSeverityLevel(settings.get(), ORT_LOGGING_LEVEL_ERROR));
        if (where == Device::directml) {
            check(api->DisableMemPattern(settings.get()));
            if (options.d3d12_device || options.d3d12_queue)
                append_own_device(settings.get(), options);
            else
                append_adapter(settings.get());
        }
        fix_sizes(settings.get());
        const Json& model = (*now.part)["model"];
        const std::string& file = model["file"].string;
        auto made = std::make_unique<Loaded>();
        if (!options.read && !model["data"].items.empty()) {
            check(api->CreateSession(env, (folder / wide(file)).c_str(), settings.get(), made->out()));
        } else {
            add_data(settings.get(), model["data"].items, files);
            const std::vector<std::uint8_t>& raw = files.at(file);
            check(api->CreateSessionFromArray(env, raw.data(), raw.size(), settings.get(), made->out()));
        }
        sessions[now.choice.bucket] = std::move(made);
        device = where;
        warm_up();
    }

    void append_adapter(OrtSessionOptions* settings) const {
        const std::string number = std::to_string(adapter_number(options));
        const char* keys[] = {"device_id", "disable_metacommands"};
        const char* values[] = {number.c_str(), "true"};
        check(api->SessionOptionsAppendExecutionProvider(settings, "DML", keys, values, options.disable_metacommands ? 2 : 1));
    }

    void fix_sizes(OrtSessionOptions* settings) const {
        for (const auto& [name, size] : now.free) {
            bool by_name = false, by_denotation = false;
            for (const TensorInfo& one : now.inputs)
                by_name = by_name || std::count(one.free_names.begin(), one.free_names.end(), name) > 0;
            for (const Json& one : contract["denotations"].items)
                by_denotation = by_denotation || one.string == name;
            if (!by_name && !by_denotation)
                fail(Code::bad_input, "the model has no free dimension '" + name + "'");
            check(by_name ? api->AddFreeDimensionOverrideByName(settings, name.c_str(), size)
                          : api->AddFreeDimensionOverride(settings, name.c_str(), size));
        }
    }

    static void add_data(OrtSessionOptions* settings, const std::vector<Json>& data,
                         const std::map<std::string, std::vector<std::uint8_t>>& files) {
        std::vector<std::wstring> names;
        std::vector<const wchar_t*> pointers;
        std::vector<char*> buffers;
        std::vector<std::size_t> sizes;
        for (const Json& one : data)
            names.push_back(wide(one.string));
        for (std::size_t i = 0; i < data.size(); ++i) {
            const std::vector<std::uint8_t>& raw = files.at(data[i].string);
            pointers.push_back(names[i].c_str());
            buffers.push_back(const_cast<char*>(reinterpret_cast<const char*>(raw.data())));
            sizes.push_back(raw.size());
        }
        if (!data.empty())
            check(api->AddExternalInitializersFromFilesInMemory(settings, pointers.data(), buffers.data(), sizes.data(),
                                                                data.size()));
    }

    std::vector<std::int64_t> shape_of(const TensorInfo& info) const {
        std::vector<std::int64_t> found = info.shape;
        for (std::size_t axis = 0; axis < found.size(); ++axis)
            if (const auto given = now.free.find(info.free_names[axis]); found[axis] < 0 && given != now.free.end())
                found[axis] = given->second;
        return found;
    }

    // With zeros, where all sizes are known: the first run compiles shaders.
    void warm_up() {
        std::vector<Tensor> zeros, ignored;
        for (const TensorInfo& info : now.inputs) {
            Tensor one{info.name, info.type, shape_of(info), {}};
            std::size_t count = size_of(info.type);
            for (std::int64_t size : one.shape) {
                if (size < 0)
                    return;
                count *= static_cast<std::size_t>(size);
            }
            one.bytes.resize(count);
            zeros.push_back(std::move(one));
        }
        if (options.warm_up)
            run(zeros, ignored);
    }

    const Tensor& fitting(const TensorInfo& info, const std::vector<Tensor>& given) const {
        const auto found = std::find_if(given.begin(), given.end(), [&](const Tensor& one) { return one.name == info.name; });
        if (found == given.end())
            fail(Code::bad_input, "input '" + info.name + "' is missing");
        const std::vector<std::int64_t> wanted = shape_of(info);
        bool fits = found->shape.size() == wanted.size();
        std::size_t bytes = size_of(found->type);
        for (std::size_t axis = 0; fits && axis < wanted.size(); ++axis) {
            fits = found->shape[axis] >= 0 && (wanted[axis] < 0 || wanted[axis] == found->shape[axis]);
            bytes *= static_cast<std::size_t>(found->shape[axis]);
        }
        if (!fits)
            fail(Code::bad_input, "input '" + info.name + "' is " + shape_text(found->shape) + ", but the model needs " +
                                      shape_text(wanted) +
                                      (now.choice.bucket.empty() ? std::string()
                                                                 : "; the bucket " + now.choice.bucket +
                                                                       " has fixed sizes: pad the input"));
        if (found->type != info.type)
            fail(Code::bad_input, "input '" + info.name + "' has another type than " + row_of(info.type).name);
        if (found->bytes.size() != bytes)
            fail(Code::bad_input, "input '" + info.name + "' has " + std::to_string(found->bytes.size()) + " bytes, and " +
                                      shape_text(found->shape) + " needs " + std::to_string(bytes));
        return *found;
    }

    void run(const std::vector<Tensor>& given, std::vector<Tensor>& answers) {
        alone_with_session([&] { run_now(given, answers); });
    }

    template <class Work>
    void alone_with_session(Work&& work) {
        const std::lock_guard<std::recursive_mutex> alone(one_at_a_time());
        demand_open();
        try {
            work();
        } catch (const Error& error) {
            if (error.status.code == Code::device_removed || error.status.code == Code::out_of_memory) {
                lost = error.status;
                sessions.clear();
            }
            throw;
        }
    }

    void bind(const std::string& name, ID3D12Resource* buffer) {
        if (device != Device::directml || !options.d3d12_queue)
            fail(Code::bad_input, "buffers are bound where the model runs on a device of the app: Options::d3d12_device");
        const auto named = [&](const TensorInfo& info) { return info.name == name; };
        const auto input = std::find_if(now.inputs.begin(), now.inputs.end(), named);
        const auto output = std::find_if(now.outputs.begin(), now.outputs.end(), named);
        if (input == now.inputs.end() && output == now.outputs.end())
            fail(Code::bad_input, "the model has no input or output '" + name + "'");
        const TensorInfo& info = input != now.inputs.end() ? *input : *output;
        const D3D12_RESOURCE_DESC desc = buffer->GetDesc();
        if (desc.Dimension != D3D12_RESOURCE_DIMENSION_BUFFER || !(desc.Flags & D3D12_RESOURCE_FLAG_ALLOW_UNORDERED_ACCESS))
            fail(Code::bad_input, "'" + name + "' needs a buffer with D3D12_RESOURCE_FLAG_ALLOW_UNORDERED_ACCESS");
        if (info.bytes == 0 || desc.Width < info.gpu_bytes)
            fail(Code::bad_input, "'" + name + "' has " + std::to_string(desc.Width) + " bytes, but the contract needs " +
                                      (info.bytes ? std::to_string(info.gpu_bytes) : std::string("fixed sizes")));
        loaded().bind(info, input != now.inputs.end(), buffer);
    }

    void run_bound() {
        for (const auto* infos : {&now.inputs, &now.outputs})
            for (const TensorInfo& info : *infos)
                if (!loaded().has(info.name))
                    fail(Code::bad_input, "'" + info.name + "' is not bound");
        loaded().run_bound();
    }

    void run_now(const std::vector<Tensor>& given, std::vector<Tensor>& answers) {
        for (const Tensor& one : given)
            if (std::none_of(now.inputs.begin(), now.inputs.end(), [&](const TensorInfo& info) { return info.name == one.name; }))
                fail(Code::bad_input, "the model has no input '" + one.name + "'");
        Owned<OrtMemoryInfo> memory(api->ReleaseMemoryInfo);
        check(api->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, memory.out()));
        Values fed(now.inputs.size()), made(now.outputs.size());
        std::vector<const char*> input_names, output_names;
        for (std::size_t i = 0; i < now.inputs.size(); ++i) {
            const Tensor& one = fitting(now.inputs[i], given);
            input_names.push_back(now.inputs[i].name.c_str());
            check(api->CreateTensorWithDataAsOrtValue(memory.get(), const_cast<std::uint8_t*>(one.bytes.data()),
                                                      one.bytes.size(), one.shape.data(), one.shape.size(),
                                                      row_of(one.type).element, &fed.all[i]));
        }
        for (const TensorInfo& info : now.outputs)
            output_names.push_back(info.name.c_str());
        check(api->Run(loaded().session(), nullptr, input_names.data(), fed.all.data(), fed.all.size(), output_names.data(),
                       output_names.size(), made.all.data()));
        answers.clear();
        for (std::size_t i = 0; i < now.outputs.size(); ++i)
            answers.push_back(tensor(now.outputs[i], made.all[i]));
    }

    struct Values {
        explicit Values(std::size_t count) : all(count, nullptr) {}
        ~Values() {
            for (OrtValue* one : all)
                if (one)
                    api->ReleaseValue(one);
        }
        Values(const Values&) = delete;
        Values& operator=(const Values&) = delete;
        std::vector<OrtValue*> all;
    };

    static Tensor tensor(const TensorInfo& info, OrtValue* value) {
        Owned<OrtTensorTypeAndShapeInfo> said(api->ReleaseTensorTypeAndShapeInfo);
        check(api->GetTensorTypeAndShape(value, said.out()));
        std::size_t rank = 0, count = 0;
        check(api->GetDimensionsCount(said.get(), &rank));
        check(api->GetTensorShapeElementCount(said.get(), &count));
        Tensor found{info.name, info.type, std::vector<std::int64_t>(rank), std::vector<std::uint8_t>(count * size_of(info.type))};
        check(api->GetDimensions(said.get(), found.shape.data(), rank));
        void* data = nullptr;
        check(api->GetTensorMutableData(value, &data));
        if (!found.bytes.empty())
            std::memcpy(found.bytes.data(), data, found.bytes.size());
        return found;
    }
};

Model::Model(std::unique_ptr<Inner> inner) noexcept : inner_(std::move(inner)) {}

Model::~Model() {
    const std::lock_guard<std::recursive_mutex> alone(one_at_a_time());
    inner_.reset();
}

Status Model::load(const std::filesystem::path& folder, const Options& options, std::unique_ptr<Model>& model) noexcept {
    return guarded([&] {
        auto inner = std::make_unique<Inner>();
        inner->folder = folder;
        inner->options = options;
        inner->read_contract();
        inner->open(options.device);
        model.reset(new Model(std::move(inner)));
    });
}

Status Model::run(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs) noexcept {
    return guarded([&] { inner_->run(inputs, outputs); });
}

Status Model::bind(const std::string& name, ID3D12Resource* buffer) noexcept {
    return guarded([&] { inner_->alone_with_session([&] { inner_->bind(name, buffer); }); });
}

Status Model::run_bound() noexcept {
    return guarded([&] { inner_->alone_with_session([&] { inner_->run_bound(); }); });
}

Status Model::reopen(Device device) noexcept {
    return guarded([&] { inner_->open(device); });
}

const std::vector<TensorInfo>& Model::inputs() const noexcept { return inner_->now.inputs; }

const std::vector<TensorInfo>& Model::outputs() const noexcept { return inner_->now.outputs; }

Status Model::choose(const Sizes& sizes, Choice& choice) const noexcept {
    return guarded([&] { dmlprep::choose(inner_->buckets(), sizes, choice); });
}

Status Model::take(const Sizes& sizes) noexcept {
    return guarded([&] { inner_->take(sizes); });
}

const std::string& Model::bucket() const noexcept { return inner_->now.choice.bucket; }

const Sizes& Model::padding() const noexcept { return inner_->now.choice.padding; }

Device Model::device() const noexcept { return inner_->device; }

const std::string& Model::notice() const noexcept { return inner_->notice; }

}  // namespace dmlprep
