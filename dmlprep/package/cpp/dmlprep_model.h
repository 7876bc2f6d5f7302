// Load a packaged model on DirectML, and run it as ONNX Runtime's DirectML provider demands. C++17, Windows.
//
//     std::unique_ptr<dmlprep::Model> model;
//     dmlprep::Status status = dmlprep::Model::load("app", {}, model);
//     dmlprep::Tensors outputs;
//     if (status)
//         status = model->run({{"image", dmlprep::Tensor::from(pixels, {1, 3, 224, 224})}}, outputs);
//     if (!status)
//         return show(status.message);
//     for (float score : outputs["scores"].as<float>())
//         ...
//
// No function throws, except for lack of memory in Tensor. README.md says what to do about each code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>
#if __cplusplus >= 202002L || (defined(_MSVC_LANG) && _MSVC_LANG >= 202002L)
#include <span>
#endif

struct ID3D12CommandQueue;
struct ID3D12Device;
struct ID3D12Resource;

namespace dmlprep {

enum class Code {
    ok,
    package_damaged,  // a file is missing or changed: repair the installation. Status::file names it
    runtime_missing,  // no onnxruntime.dll with DirectML next to the program, or one that is too old
    adapter_missing,  // no adapter, or more than one, fits Options::adapter
    bad_input,        // an input is missing, or not of the type and shape of the contract
    device_removed,   // 887A0005, 887A0006, 887A0007, 887A0020: wait a second, then reopen()
    out_of_memory,    // 8007000E: free other models, use smaller inputs, then reopen()
    failed,           // any other error of the runtime
};

struct [[nodiscard]] Status {
    Code code = Code::ok;
    std::string message;  // UTF-8, for a log
    std::string file;     // of package_damaged

    explicit operator bool() const noexcept { return code == Code::ok; }
};

// A number of 16 bits (IEEE 754 binary16), as models in FP16 have them.
struct Half {
    std::uint16_t bits = 0;

    Half() = default;
    explicit Half(float value) noexcept;  // rounds to the nearest; ties to even
    explicit operator float() const noexcept;
};

enum class Type { none, float16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64, boolean };

std::size_t size_of(Type type) noexcept;

// The element type of a C++ type; `none` if tensors cannot have it.
template <class T>
constexpr Type type_of() noexcept {
    using V = std::remove_cv_t<T>;
    return std::is_same_v<V, Half>            ? Type::float16
           : std::is_same_v<V, float>         ? Type::float32
           : std::is_same_v<V, double>        ? Type::float64
           : std::is_same_v<V, std::int8_t>   ? Type::int8
           : std::is_same_v<V, std::int16_t>  ? Type::int16
           : std::is_same_v<V, std::int32_t>  ? Type::int32
           : std::is_same_v<V, std::int64_t>  ? Type::int64
           : std::is_same_v<V, std::uint8_t>  ? Type::uint8
           : std::is_same_v<V, std::uint16_t> ? Type::uint16
           : std::is_same_v<V, std::uint32_t> ? Type::uint32
           : std::is_same_v<V, std::uint64_t> ? Type::uint64
           : std::is_same_v<V, bool>          ? Type::boolean
                                              : Type::none;
}

// The numbers of a tensor, as std::span<const T> of C++20, which it converts to.
template <class T>
class View {
public:
    View() = default;
    View(const T* data, std::size_t size) noexcept : data_(data), size_(size) {}
    const T* data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }
    bool empty() const noexcept { return size_ == 0; }
    const T* begin() const noexcept { return data_; }
    const T* end() const noexcept { return data_ + size_; }
    const T& operator[](std::size_t index) const noexcept { return data_[index]; }

private:
    const T* data_ = nullptr;
    std::size_t size_ = 0;
};

using Shape = std::vector<std::int64_t>;

// A tensor on the CPU, row by row without gaps. Copies share the numbers, which never change.
class Tensor {
public:
    Tensor() = default;

    // A tensor of `bytes` bytes at `data`, which `owner` keeps: no copy.
    Tensor(Type type, Shape shape, std::shared_ptr<const void> owner, const void* data, std::size_t bytes) noexcept
        : type_(type), shape_(std::move(shape)), owner_(std::move(owner)), data_(data), bytes_(bytes) {}

    // The vector becomes the tensor: with std::move there is no copy. Model::run refuses a shape of another number of elements.
    template <class T>
    static Tensor from(std::vector<T> values, Shape shape) {
        static_assert(!std::is_same_v<T, bool>, "std::vector<bool> has no array of bool: pass a pointer and a count");
        static_assert(type_of<T>() != Type::none, "no element type of tensors: see dmlprep::Type");
        const auto owner = std::make_shared<const std::vector<T>>(std::move(values));
        return Tensor(type_of<T>(), std::move(shape), owner, owner->data(), owner->size() * sizeof(T));
    }

    // A copy of `count` numbers.
    template <class T>
    static Tensor from(const T* values, std::size_t count, Shape shape) {
        static_assert(type_of<T>() != Type::none, "no element type of tensors: see dmlprep::Type");
        const auto owner = std::make_shared<std::vector<std::uint8_t>>(count * sizeof(T));
        if (count)
            std::memcpy(owner->data(), values, owner->size());
        return Tensor(type_of<T>(), std::move(shape), owner, owner->data(), owner->size());
    }

#if defined(__cpp_lib_span)
    template <class T, std::size_t Extent>
    static Tensor from(std::span<T, Extent> values, Shape shape) {
        return from(static_cast<const T*>(values.data()), values.size(), std::move(shape));
    }
#endif

    Type type() const noexcept { return type_; }
    const Shape& shape() const noexcept { return shape_; }

    // The numbers, as long as this tensor or a copy of it exists. Empty if the tensor has another type.
    template <class T>
    View<T> as() const noexcept {
        static_assert(type_of<T>() != Type::none, "no element type of tensors: see dmlprep::Type");
        return type_ == type_of<T>() ? View<T>(static_cast<const T*>(data_), bytes_ / sizeof(T)) : View<T>();
    }

    View<std::uint8_t> bytes() const noexcept { return {static_cast<const std::uint8_t*>(data_), bytes_}; }

private:
    Type type_ = Type::none;
    Shape shape_;
    std::shared_ptr<const void> owner_;
    const void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

// Tensors by the names of inputs or outputs.
using Tensors = std::map<std::string, Tensor>;

enum class Device { dml, cpu, dml_or_cpu };

enum class Prefer { none, npu, gpu };

// Returns the bytes of a file by its name, instead of the folder; false if there is none. For models that are encrypted.
using Read = std::function<bool(const std::string& name, std::vector<std::uint8_t>& bytes)>;

// Sizes by the names of dimensions.
using Sizes = std::map<std::string, std::int64_t>;

struct Options {
    Device device = Device::dml;
    std::string adapter = "0";  // DXGI's number (0: the adapter of the desktop), high_performance, minimum_power, a vendor
                                // (NVIDIA, AMD, Intel, Qualcomm), or a part of a name
    Sizes sizes;                // of free dimensions, by name or denotation; with buckets, of the app's inputs (Model::bucket)
    bool disable_metacommands = false;  // DirectML's own shaders instead of the vendor's kernels
    bool warm_up = true;                // run once with zeros while loading
    Read read;
    std::filesystem::path runtime;  // folder of onnxruntime.dll; if empty, the program's own

    // The app's own device and its queue (DIRECT or COMPUTE), both or neither, instead of an adapter: for bind().
    ID3D12Device* d3d12_device = nullptr;
    ID3D12CommandQueue* d3d12_queue = nullptr;

    // Execution providers of vendors, as Windows ML has them: prefer one for this hardware to DirectML. `libraries` has the
    // paths of their DLLs by their names (ExecutionProviderCatalog of Windows ML).
    Prefer prefer = Prefer::none;
    std::map<std::string, std::filesystem::path> libraries;

    std::function<void(const std::string&)> log;  // gets Model::notice once, if there is one; if not set, stderr does
};

// One input or output of the contract.
struct TensorInfo {
    std::string name;
    Type type = Type::none;
    Shape shape;                          // -1 for a free dimension
    std::vector<std::string> free_names;  // name of each free dimension; "" for a fixed one
    std::string layout;                   // such as NCHW, if known
    std::string meaning;                  // picture, boxes, scores ..., if known
    std::string colour;                   // of a picture: rgb, bgr, rgba, bgra, gray
    bool has_range = false;               // whether low and high are known
    double low = 0, high = 0;             // the least and the largest number
    std::size_t bytes = 0;                // 0 if a dimension is free
    std::size_t gpu_bytes = 0;            // least size of a D3D12 buffer
};

// The bucket for some sizes: that of exactly these sizes; otherwise, of those with room in every dimension, that of fewest
// elements.
struct Choice {
    std::string bucket;  // its name
    Sizes sizes;         // its own, which its inputs must have
    Sizes padding;       // number of elements that the app has to add; their values depend on the model
};

// A loaded model. Threads may share it: its runs take turns. Runs of different models do not.
class Model {
public:
    // Loads the package in `folder` (if empty, the program's own), checked against model.json, ready to run.
    static Status load(const std::filesystem::path& folder, const Options& options, std::unique_ptr<Model>& model) noexcept;
    ~Model();
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;

    // Runs once. The outputs own ONNX Runtime's memory: they are not copied, and can outlive the model.
    Status run(const Tensors& inputs, Tensors& outputs) noexcept;

    // Lets an input or output be a buffer of the app's device, which stays there: in a DEFAULT heap, with at least gpu_bytes,
    // D3D12_RESOURCE_FLAG_ALLOW_UNORDERED_ACCESS, in the state UNORDERED_ACCESS. The model keeps a reference until another
    // buffer replaces it, or reopen(). Shapes must be fixed.
    Status bind(const std::string& name, ID3D12Resource* buffer) noexcept;

    // Runs on the bound buffers, which must be all inputs and outputs. The work goes into the app's queue, in order with the
    // app's own work. No copy to the CPU. It can return before the work is done: wait for a fence of the queue. bind(),
    // reopen() and the destructor wait for the work.
    Status run_bound() noexcept;

    // Makes a new session of the current bucket, and closes all others: after device_removed or out_of_memory.
    // Without a device, it is asked().
    Status reopen(Device device) noexcept;
    Status reopen() noexcept;

    // Finds the bucket for these sizes, and loads nothing. bad_input if none has room, or the package has none.
    Status choose(const Sizes& sizes, Choice& choice) const noexcept;

    // Changes to the bucket for these sizes, in all threads that share this model. It makes the session if there is none yet;
    // the others stay, with their buffers and with weights of their own on the device, until reopen(). After an error the
    // earlier bucket is still current.
    Status take(const Sizes& sizes) noexcept;

    // Name of the current bucket, empty in a package without buckets; and what the sizes lack to it: Choice::padding.
    const std::string& bucket() const noexcept;
    const Sizes& padding() const noexcept;

    // Of the current bucket.
    const std::vector<TensorInfo>& inputs() const noexcept;
    const std::vector<TensorInfo>& outputs() const noexcept;

    // The device as set, by Options or reopen().
    Device asked() const noexcept;

    // What runs the model: "dml", "cpu", or the name of a vendor's provider.
    const std::string& device() const noexcept;

    // How that is known, in one sentence.
    const std::string& evidence() const noexcept;

    // Why the model does not run where it was asked to; empty if it does.
    const std::string& notice() const noexcept;

private:
    struct Inner;
    explicit Model(std::unique_ptr<Inner> inner) noexcept;
    std::unique_ptr<Inner> inner_;
};

}  // namespace dmlprep
