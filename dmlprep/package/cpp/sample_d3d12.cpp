// Runs the packaged model on the app's own Direct3D 12 device and queue, with tensors that never leave the GPU:
// sample_d3d12.exe FOLDER [DIM=SIZE ...]. A compute shader turns a picture on the GPU into the model's input (your
// pre-processing), the model runs, a second shader reads its outputs (your post-processing); then the outputs are read back
// once, to be printed. Inputs must be float32, uint8, bool or of 32-bit or 64-bit whole numbers. Sizes choose among the buckets of a
// package that has some.
#if defined(__MINGW32__)
#define WIDL_EXPLICIT_AGGREGATE_RETURNS
#endif
#include "dmlprep_model.h"
#include "d3d12_sample.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

namespace {

template <class Value>
double get(const std::vector<std::uint8_t>& bytes, std::size_t index) {
    Value value;
    std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
    return static_cast<double>(value);
}

// The first numbers of what the second shader wrote, halved where it doubled them.
void print(const dmlprep::TensorInfo& info, const std::vector<std::uint8_t>& bytes) {
    std::string shape;
    for (std::int64_t size : info.shape)
        shape += (shape.empty() ? "" : "x") + std::to_string(size);
    std::printf("%s %s", info.name.c_str(), shape.c_str());
    const std::size_t elements = bytes.size() / dmlprep::size_of(info.type);
    for (std::size_t i = 0; i < std::min<std::size_t>(elements, 8); ++i)
        std::printf(" %.6f", info.type == dmlprep::Type::float32 ? get<float>(bytes, i) / 2
                             : info.type == dmlprep::Type::int32 ? get<std::int32_t>(bytes, i) / 2
                             : info.type == dmlprep::Type::int64 ? get<std::int64_t>(bytes, i)
                                                                 : get<std::uint8_t>(bytes, i));
    std::printf("\n");
}

}  // namespace

int main(int count, char** arguments) {
    using namespace d3d12_sample;
    Gpu gpu;
    if (!gpu.open())
        return failed("no Direct3D 12 device");
    dmlprep::Options options;
    options.d3d12_device = gpu.device.get();
    options.d3d12_queue = gpu.queue.get();
    for (int i = 2; i < count; ++i)
        if (const char* at = std::strchr(arguments[i], '='))
            options.sizes[std::string(arguments[i], static_cast<std::size_t>(at - arguments[i]))] = std::atoll(at + 1);
    std::unique_ptr<dmlprep::Model> model;
    if (dmlprep::Status status = dmlprep::Model::load(count > 1 ? arguments[1] : "", options, model); !status)
        return failed(status.message.c_str());
    if (!model->bucket().empty())
        std::printf("bucket %s\n", model->bucket().c_str());
    std::map<std::string, Com<ID3D12Resource>> buffers;
    for (const auto* infos : {&model->inputs(), &model->outputs()})
        for (const dmlprep::TensorInfo& info : *infos) {
            if (!gpu.buffer(info.gpu_bytes, D3D12_HEAP_TYPE_DEFAULT, buffers[info.name]))
                return failed("no buffer");
            if (dmlprep::Status status = model->bind(info.name, buffers[info.name].get()); !status)
                return failed(status.message.c_str());
        }
    std::map<std::string, Com<ID3D12Resource>> pictures;
    std::map<std::string, Picture> forms;
    for (const dmlprep::TensorInfo& info : model->inputs())
        if (Picture form; picture_of(info, form)) {
            const std::vector<std::uint8_t> bytes = example_picture(form, info.type);
            if (!gpu.buffer(bytes.size(), D3D12_HEAP_TYPE_DEFAULT, pictures[info.name]) ||
                !gpu.upload(bytes, pictures[info.name].get()))
                return failed("the picture does not get to the GPU");
            forms[info.name] = form;
        }
    // For each picture: three pieces of work in one queue, which does them one after the other. No copy to the CPU.
    // 1. Pre-processing: your own shader.
    for (const dmlprep::TensorInfo& info : model->inputs()) {
        const auto form = forms.find(info.name);
        const bool is_picture = form != forms.end();
        const std::string shader = is_picture ? picture_shader(form->second, info.type) : example_shader(info);
        if (shader.empty())
            return failed("this sample has no shader for the type of an input");
        if (!gpu.dispatch(shader, buffers[info.name].get(), info.gpu_bytes / 4, is_picture ? pictures[info.name].get() : nullptr))
            return failed("the shader before the model does not run");
    }
    // 2. The model.
    if (dmlprep::Status status = model->run_bound(); !status)
        return failed(status.message.c_str());
    // 3. Post-processing: here each number is doubled, into a buffer of its own.
    for (const dmlprep::TensorInfo& info : model->outputs()) {
        Com<ID3D12Resource> doubled;
        std::vector<std::uint8_t> bytes(info.bytes);
        if (!gpu.buffer(info.gpu_bytes, D3D12_HEAP_TYPE_DEFAULT, doubled) ||
            !gpu.dispatch(doubled_shader(info.type), doubled.get(), info.gpu_bytes / 4, buffers[info.name].get()))
            return failed("the shader after the model does not run");
        if (!gpu.read(doubled.get(), bytes))
            return failed("the buffer cannot be read");
        print(info, bytes);
    }
    return 0;
}
