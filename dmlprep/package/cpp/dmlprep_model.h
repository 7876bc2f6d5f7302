// Load a packaged model on DirectML, and run it, as ONNX Runtime's DirectML provider demands. C++17, Windows.
//
//     std::unique_ptr<dmlprep::Model> model;
//     dmlprep::Options options;
//     if (dmlprep::Status status = dmlprep::Model::load(L"app", options, model); !status)
//         return fail(status.message);
//     std::vector<dmlprep::Tensor> inputs = ..., outputs;
//     status = model->run(inputs, outputs);
//
// No function throws. README.md says what to do about each code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

struct ID3D12CommandQueue;
struct ID3D12Device;
struct ID3D12Resource;

namespace dmlprep {

enum class Code {
    ok,
    package_damaged,  // a file is missing or changed: repair the installation. Status::file names it
    runtime_missing,  // no onnxruntime.dll with DirectML beside the program, or one that is too old
    adapter_missing,  // no adapter, or more than one, is what was asked for
    bad_input,        // an input is missing, or not of the type and shape of the contract
    device_removed,   // 887A0005, 887A0006, 887A0007, 887A0020: wait a second, then reopen()
    out_of_memory,    // 8007000E: free other models, use smaller inputs, then reopen()
    failed,           // any other error of the runtime
};

struct Status {
    Code code = Code::ok;
    std::string message;  // UTF-8, for a log
    std::string file;     // of package_damaged

    explicit operator bool() const noexcept { return code == Code::ok; }
};

enum class Device { directml, cpu, directml_or_cpu };

enum class Preference { none, high_performance, minimum_power };

// Element types, by numpy's names in the contract.
enum class Type { none, float16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64, boolean };

std::size_t size_of(Type type) noexcept;

// Gives a file's bytes by its name, in place of the folder; false where there is none. For models kept encrypted.
using Read = std::function<bool(const std::string& name, std::vector<std::uint8_t>& bytes)>;

// Sizes by the names of dimensions.
using Sizes = std::map<std::string, std::int64_t>;

struct Options {
    Device device = Device::directml;
    int adapter = 0;                            // DXGI's number; 0 is the adapter of the desktop
    std::string adapter_name;                   // or a vendor (NVIDIA, AMD, Intel, Qualcomm), or a part of a name
    Preference preference = Preference::none;   // or what DXGI orders first
    Sizes sizes;                                // of free dimensions, by name or denotation; of a package with buckets,
                                                // those of the app's inputs: see Model::bucket
    bool disable_metacommands = false;          // DirectML's own shaders in place of the vendor's kernels
    bool warm_up = true;                        // run once with zeros while loading
    Read read;
    std::filesystem::path runtime;              // folder of onnxruntime.dll; the program's own where it is empty

    // The app's own device and its queue (DIRECT or COMPUTE), both or neither, instead of an adapter: for bind().
    ID3D12Device* d3d12_device = nullptr;
    ID3D12CommandQueue* d3d12_queue = nullptr;
};

// One input or output of the contract.
struct TensorInfo {
    std::string name;
    Type type = Type::none;
    std::vector<std::int64_t> shape;      // -1 for a dimension that is free
    std::vector<std::string> free_names;  // name of each free dimension, "" for a fixed one
    std::string layout;                   // NCHW, where the contract says it
    std::string meaning;                  // picture, boxes, scores ..., where the contract says it
    std::string colour;                   // of a picture: rgb, bgr, rgba, bgra, gray
    bool has_range = false;               // whether low and high are known
    double low = 0, high = 0;             // the least and the largest number
    std::size_t bytes = 0;                // 0 where a dimension is free
    std::size_t gpu_bytes = 0;            // least size of a D3D12 buffer
};

// A tensor on the CPU, row by row without gaps.
struct Tensor {
    std::string name;
    Type type = Type::none;
    std::vector<std::int64_t> shape;
    std::vector<std::uint8_t> bytes;
};

// Which bucket some sizes take: the one of exactly these; else, of those with room in every dimension, that of fewest elements.
struct Choice {
    std::string bucket;  // its name
    Sizes sizes;         // its own, which its inputs must have
    Sizes padding;       // how many elements the app has to add; what they must hold depends on the model
};

class Model {
public:
    // The model of the package in `folder`, checked against model.json, ready to run.
    static Status load(const std::filesystem::path& folder, const Options& options, std::unique_ptr<Model>& model) noexcept;
    ~Model();
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;

    // Run once; other threads of the process wait meanwhile, whichever model they run.
    Status run(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs) noexcept;

    // Let an input or output be a buffer of the app's device, which stays there: in a DEFAULT heap, with at least gpu_bytes,
    // D3D12_RESOURCE_FLAG_ALLOW_UNORDERED_ACCESS, in the state UNORDERED_ACCESS. The model keeps a reference until another
    // buffer takes its place, or reopen(). Shapes must be fixed.
    Status bind(const std::string& name, ID3D12Resource* buffer) noexcept;

    // Run on the buffers that were bound, which must be all inputs and outputs. The work goes into the app's queue: what the
    // app put there before is done before it, and what it puts there afterwards is done after it. No copy to the CPU. The work
    // may not be done yet when this returns: wait for a fence of the queue. Other buffers, reopen() and the end wait for it.
    Status run_bound() noexcept;

    // A new session of the bucket that is loaded, and no others: after device_removed or out_of_memory.
    Status reopen(Device device) noexcept;

    // Which bucket these sizes would take; nothing is loaded. bad_input where none has room, or the package has none.
    Status choose(const Sizes& sizes, Choice& choice) const noexcept;

    // Go on with the bucket for these sizes, in all threads that share this model. Its session is made where it was not
    // before; the others stay, with their buffers and with weights of their own on the device, until reopen(). After an error the
    // bucket of before is still there.
    Status take(const Sizes& sizes) noexcept;

    // Name of the bucket that is loaded, empty in a package without buckets; and what the sizes lack to it: Choice::padding.
    const std::string& bucket() const noexcept;
    const Sizes& padding() const noexcept;

    // Of the model that is loaded; take() replaces them.
    const std::vector<TensorInfo>& inputs() const noexcept;
    const std::vector<TensorInfo>& outputs() const noexcept;

    // directml or cpu: what runs it.
    Device device() const noexcept;

    // Why it runs on the CPU though DirectML was asked for; empty where it does not.
    const std::string& notice() const noexcept;

private:
    struct Inner;
    explicit Model(std::unique_ptr<Inner> inner) noexcept;
    std::unique_ptr<Inner> inner_;
};

}  // namespace dmlprep
