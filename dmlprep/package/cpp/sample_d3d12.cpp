// Runs the packaged model on the app's own Direct3D 12 device and queue, with tensors that never leave the GPU:
// sample_d3d12.exe FOLDER. A compute shader writes the inputs (your pre-processing), the model runs, a second one reads its
// outputs (your post-processing); then the outputs are read back once, to be printed. Inputs and outputs must be float32.
#if defined(__MINGW32__)
#define WIDL_EXPLICIT_AGGREGATE_RETURNS
#endif
#include "dmlprep_model.h"
#include "d3d12_sample.h"

#include <algorithm>
#include <cstdio>
#include <map>

int main(int count, char** words) {
    using namespace d3d12_sample;
    Gpu gpu;
    if (!gpu.open())
        return failed("no Direct3D 12 device");
    dmlprep::Options options;
    options.d3d12_device = gpu.device.get();
    options.d3d12_queue = gpu.queue.get();
    std::unique_ptr<dmlprep::Model> model;
    if (dmlprep::Status status = dmlprep::Model::load(count > 1 ? words[1] : ".", options, model); !status)
        return failed(status.message.c_str());
    std::map<std::string, Com<ID3D12Resource>> buffers;
    for (const auto* infos : {&model->inputs(), &model->outputs()})
        for (const dmlprep::TensorInfo& info : *infos) {
            if (info.type != dmlprep::Type::float32)
                return failed("this sample's shaders are for float32");
            if (!gpu.buffer(info.gpu_bytes, D3D12_HEAP_TYPE_DEFAULT, buffers[info.name]))
                return failed("no buffer");
            if (dmlprep::Status status = model->bind(info.name, buffers[info.name].get()); !status)
                return failed(status.message.c_str());
        }
    // Pre-processing: put in your own shader. All three go into one queue, which does them one after the other.
    for (const dmlprep::TensorInfo& info : model->inputs())
        if (!gpu.dispatch(example_shader, buffers[info.name].get(), info.bytes / 4))
            return failed("the shader before the model does not run");
    if (dmlprep::Status status = model->run_bound(); !status)
        return failed(status.message.c_str());
    // Post-processing: here each number is doubled, into a buffer of its own.
    for (const dmlprep::TensorInfo& info : model->outputs()) {
        const std::size_t elements = info.bytes / 4;
        Com<ID3D12Resource> doubled;
        std::vector<float> values(elements);
        if (!gpu.buffer(info.gpu_bytes, D3D12_HEAP_TYPE_DEFAULT, doubled) ||
            !gpu.dispatch(double_shader, doubled.get(), elements, buffers[info.name].get()))
            return failed("the shader after the model does not run");
        if (!gpu.read(doubled.get(), values))
            return failed("the buffer cannot be read");
        std::string shape;
        for (std::int64_t size : info.shape)
            shape += (shape.empty() ? "" : "x") + std::to_string(size);
        std::printf("%s %s", info.name.c_str(), shape.c_str());
        for (std::size_t i = 0; i < std::min<std::size_t>(values.size(), 8); ++i)
            std::printf(" %.6f", static_cast<double>(values[i]) / 2);
        std::printf("\n");
    }
    return 0;
}
