// A stand-in for onnxruntime.dll: the real one, real.dll beside it, whose Run fails from the third call on as it does when
// the GPU has gone away. Sessions that are made afterwards work again.
#include <windows.h>
#include <onnxruntime_c_api.h>

#include <atomic>
#include <cstring>

static OrtApi own;
static const OrtApi* real;
static std::atomic<int> runs{0};

static OrtStatus* ORT_API_CALL run(OrtSession* session, const OrtRunOptions* options, const char* const* names,
                                   const OrtValue* const* inputs, size_t count, const char* const* wanted,
                                   size_t outputs, OrtValue** answers) noexcept {
    if (++runs == 3)
        return real->CreateStatus(ORT_FAIL, "Non-zero status code: 887A0005 The GPU device instance has been suspended.");
    return real->Run(session, options, names, inputs, count, wanted, outputs, answers);
}

static const OrtApi* ORT_API_CALL get_api(uint32_t version) noexcept;
static const char* ORT_API_CALL get_version() noexcept { return "1.24.4"; }
static const OrtApiBase base = {get_api, get_version};

static const OrtApi* ORT_API_CALL get_api(uint32_t version) noexcept {
    using GetBase = const OrtApiBase*(ORT_API_CALL*)();
    HMODULE library = LoadLibraryA("C:\\checkout\\removed\\real.dll");
    const auto get = library ? reinterpret_cast<GetBase>(reinterpret_cast<void*>(GetProcAddress(library, "OrtGetApiBase"))) : nullptr;
    if (!get)
        return nullptr;
    real = get()->GetApi(version);
    std::memcpy(&own, real, sizeof own);
    own.Run = run;
    return &own;
}

extern "C" __declspec(dllexport) const OrtApiBase* ORT_API_CALL OrtGetApiBase(void) noexcept { return &base; }
