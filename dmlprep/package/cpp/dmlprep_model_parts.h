// What the files of the loader share; programs include dmlprep_model.h. Inside the loader errors are thrown, and none leaves it.
#pragma once
#define NOMINMAX
#define WIN32_LEAN_AND_MEAN
#include "dmlprep_model.h"

#include <windows.h>
#if defined(__MINGW32__)
#define WIDL_EXPLICIT_AGGREGATE_RETURNS  // GetDesc, as Windows has it
#endif
#include <d3d12.h>
#include <onnxruntime_c_api.h>

#include <exception>
#include <mutex>

struct OrtEpDevice;  // which headers before 1.22 do not have

namespace dmlprep::detail {

struct Error : std::exception {
    explicit Error(Status one) : status(std::move(one)) {}
    const char* what() const noexcept override { return status.message.c_str(); }
    Status status;
};

[[noreturn]] void fail(Code code, std::string message);
[[noreturn]] void damaged(const std::string& file, const std::string& what);

std::wstring wide(const std::string& text);
std::string narrow(const wchar_t* text);
std::string shape_text(const Shape& shape);

// ---- The contract: dmlprep_model_contract.cpp ----

constexpr char contract_name[] = "model.json";
constexpr char digest_name[] = "model.json.sha256";

struct Json {
    enum Kind { null, boolean, number, text, list, object } kind = null;
    double value = 0;
    std::string string;
    std::vector<Json> items;
    std::vector<std::pair<std::string, Json>> members;

    const Json& operator[](const char* name) const;       // package_damaged if it is missing
    const Json& or_null(const char* name) const noexcept;
};

Json parse_json(const std::string& text);

// SHA-256 of bytes that come in pieces.
class Sha256 {
public:
    Sha256();
    ~Sha256();
    Sha256(const Sha256&) = delete;
    Sha256& operator=(const Sha256&) = delete;
    void add(const void* data, std::size_t size);
    std::string hex();

private:
    void* algorithm_ = nullptr;
    void* hash_ = nullptr;
};

template <class Names>
std::string listed(const Names& all) {
    std::string found;
    for (const std::string& one : all)
        found += (found.empty() ? "" : ", ") + one;
    return found;
}

struct TypeRow {
    const char* name;  // numpy's
    Type type;
    ONNXTensorElementDataType element;
    std::size_t size;
};

const TypeRow& row_of(Type type);
TensorInfo tensor_info(const Json& one);

[[noreturn]] void no_buckets();
const Json& choose(const std::vector<Json>& buckets, const Sizes& sizes, Choice& choice);

// ---- ONNX Runtime: dmlprep_model_runtime.cpp ----

extern const OrtApi* api;  // null before environment()
extern std::string runtime_version;

std::filesystem::path own_folder();  // of the program

// Throws the error that `text`, a message of ONNX Runtime or Windows, stands for.
[[noreturn]] void translated(const std::string& text);
void check(OrtStatus* status);

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

// The part of dml_provider_factory.h that is needed: a fixed interface, and not in every SDK.
struct DmlApi {
    OrtStatus*(ORT_API_CALL* append)(OrtSessionOptions*, int device_id);
    OrtStatus*(ORT_API_CALL* append_own)(OrtSessionOptions*, IUnknown* dml_device, ID3D12CommandQueue*);
    OrtStatus*(ORT_API_CALL* create_allocation)(ID3D12Resource*, void** allocation);
    OrtStatus*(ORT_API_CALL* free_allocation)(void* allocation);
    OrtStatus*(ORT_API_CALL* resource_of)(OrtAllocator*, void* allocation, ID3D12Resource**);
};

// For sessions that are created and closed, of all models: environment() and those below need it.
std::mutex& session_lock();
OrtEnv* environment(const std::filesystem::path& chosen);
const DmlApi& dml_api();

void append_directml(OrtSessionOptions* settings, const Options& options);

// The device of a vendor's provider that Options::prefer selects; adapter_missing if there is none.
const OrtEpDevice* vendor_device(OrtEnv* env, const Options& options, std::string& provider);
void append_vendor(OrtEnv* env, OrtSessionOptions* settings, const OrtEpDevice* device);

// Lets the session record which provider runs which node, and says it. The provider runs none: Code::failed.
void record_nodes(OrtSessionOptions* settings);
std::string nodes_of(const OrtSession* session, const std::string& provider);

}  // namespace dmlprep::detail
