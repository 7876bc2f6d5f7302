// Counts what is copied between the CPU and the GPU while a model runs: every copy of every command list of the device whose
// source lies in an UPLOAD heap or whose target lies in a READBACK heap. With bound buffers there must be none; with tensors
// on the CPU there must be one each way at least, or the counting does not work. Prints "good" last.
#if defined(__MINGW32__)
#define WIDL_EXPLICIT_AGGREGATE_RETURNS
#endif
#include "dmlprep_model.h"
#include "d3d12_sample.h"

#include <atomic>
#include <map>
#include <mutex>

using namespace d3d12_sample;

namespace {

std::atomic<int> up{0}, down{0}, all{0}, lists{0};
std::mutex guard;
std::map<void*, int> heaps;
std::map<void*, void**> real_tables;  // by table of ours

// Places in the tables of ID3D12Device and ID3D12GraphicsCommandList (d3d12.h).
constexpr std::size_t create_list = 12, create_resource = 27, copy_buffer = 15, copy_resource = 17, table_size = 96;

int heap_of(void* resource) {
    const std::lock_guard<std::mutex> lock(guard);
    const auto found = heaps.find(resource);
    return found == heaps.end() ? 0 : found->second;
}

void count(void* target, void* source) {
    ++all;
    up += heap_of(source) == D3D12_HEAP_TYPE_UPLOAD;
    down += heap_of(target) == D3D12_HEAP_TYPE_READBACK;
}

void** real(void* object) {
    const std::lock_guard<std::mutex> lock(guard);
    return real_tables.at(*static_cast<void***>(object));
}

// Gives one object a table of its own, in which `changes` take the places of methods.
void change(void* object, std::initializer_list<std::pair<std::size_t, void*>> changes) {
    void*** table = static_cast<void***>(object);
    const std::lock_guard<std::mutex> lock(guard);
    if (real_tables.count(*table))
        return;
    auto** own = new void*[table_size];  // as long as the process
    std::memcpy(own, *table, table_size * sizeof *own);
    real_tables[own] = *table;
    for (const auto& [place, method] : changes)
        own[place] = method;
    *table = own;
}

void STDMETHODCALLTYPE counted_buffer(void* self, void* target, UINT64 to, void* source, UINT64 from, UINT64 bytes) {
    count(target, source);
    using Method = void(STDMETHODCALLTYPE*)(void*, void*, UINT64, void*, UINT64, UINT64);
    reinterpret_cast<Method>(real(self)[copy_buffer])(self, target, to, source, from, bytes);
}

void STDMETHODCALLTYPE counted_resource(void* self, void* target, void* source) {
    count(target, source);
    using Method = void(STDMETHODCALLTYPE*)(void*, void*, void*);
    reinterpret_cast<Method>(real(self)[copy_resource])(self, target, source);
}

HRESULT STDMETHODCALLTYPE seen_list(void* self, UINT node, int type, void* allocator, void* state, REFIID id, void** made) {
    using Method = HRESULT(STDMETHODCALLTYPE*)(void*, UINT, int, void*, void*, REFIID, void**);
    const HRESULT result = reinterpret_cast<Method>(real(self)[create_list])(self, node, type, allocator, state, id, made);
    if (SUCCEEDED(result) && made && *made) {
        ++lists;
        change(*made, {{copy_buffer, reinterpret_cast<void*>(counted_buffer)},
                       {copy_resource, reinterpret_cast<void*>(counted_resource)}});
    }
    return result;
}

HRESULT STDMETHODCALLTYPE seen_resource(void* self, const D3D12_HEAP_PROPERTIES* heap, int flags, const void* desc, int state,
                                        const void* clear, REFIID id, void** made) {
    using Method = HRESULT(STDMETHODCALLTYPE*)(void*, const D3D12_HEAP_PROPERTIES*, int, const void*, int, const void*, REFIID, void**);
    const HRESULT result =
        reinterpret_cast<Method>(real(self)[create_resource])(self, heap, flags, desc, state, clear, id, made);
    if (SUCCEEDED(result) && made && *made) {
        const std::lock_guard<std::mutex> lock(guard);
        heaps[*made] = heap->Type;
    }
    return result;
}

void demand(bool holds, const char* what, const dmlprep::Status& status = {}) {
    if (holds)
        return;
    std::printf("WRONG: %s: %s\n", what, status.message.c_str());
    std::fflush(stdout);
    std::_Exit(1);
}

void reset() { up = down = all = 0; }

}  // namespace

int main() {
    Gpu gpu;
    demand(gpu.open(), "no device");
    change(gpu.device.get(), {{create_list, reinterpret_cast<void*>(seen_list)}, {create_resource, reinterpret_cast<void*>(seen_resource)}});
    dmlprep::Options options;
    options.d3d12_device = gpu.device.get();
    options.d3d12_queue = gpu.queue.get();
    std::unique_ptr<dmlprep::Model> model;
    dmlprep::Status status = dmlprep::Model::load(".", options, model);
    demand(bool(status), "load", status);
    const dmlprep::TensorInfo in = model->inputs().front(), out = model->outputs().front();

    // With tensors on the CPU, to see that copies are counted.
    dmlprep::Tensor fed{in.name, in.type, in.shape, std::vector<std::uint8_t>(in.bytes)};
    for (std::size_t i = 0; i < in.bytes / 4; ++i) {
        const float value = static_cast<float>(i * 37 % 101) / 101;
        std::memcpy(fed.bytes.data() + 4 * i, &value, 4);
    }
    std::vector<dmlprep::Tensor> answers;
    reset();
    status = model->run({fed}, answers);
    demand(bool(status), "run", status);
    std::printf("tensors on the CPU: %d copies, %d up, %d down\n", all.load(), up.load(), down.load());
    demand(lists > 0 && up > 0 && down > 0, "the copies of a run with tensors on the CPU are not seen");

    Com<ID3D12Resource> input, output, small;
    demand(gpu.buffer(in.gpu_bytes, D3D12_HEAP_TYPE_DEFAULT, input) && gpu.buffer(out.gpu_bytes, D3D12_HEAP_TYPE_DEFAULT, output) &&
               gpu.buffer(in.gpu_bytes - 4, D3D12_HEAP_TYPE_DEFAULT, small),
           "buffers");
    demand(model->run_bound().code == dmlprep::Code::bad_input, "a run with nothing bound");
    demand(model->bind(in.name, small.get()).code == dmlprep::Code::bad_input, "a buffer that is too small");
    demand(model->bind("nothing", input.get()).code == dmlprep::Code::bad_input, "a name that the model does not have");
    status = model->bind(in.name, input.get());
    demand(bool(status), "bind the input", status);
    demand(model->run_bound().code == dmlprep::Code::bad_input, "a run with half of it bound");
    status = model->bind(out.name, output.get());
    demand(bool(status), "bind the output", status);
    for (int round = 0; round < 3; ++round) {
        demand(gpu.dispatch(example_shader, input.get(), in.bytes / 4), "the shader before");
        reset();
        status = model->run_bound();
        demand(bool(status), "run on the GPU", status);
        std::printf("bound buffers: %d copies, %d up, %d down\n", all.load(), up.load(), down.load());
        demand(up == 0 && down == 0, "something was copied between CPU and GPU");
        std::vector<float> values(out.bytes / 4);
        demand(gpu.read(output.get(), values), "read");
        demand(std::memcmp(values.data(), answers.front().bytes.data(), out.bytes) == 0, "other numbers than from the CPU");
        demand(gpu.dispatch("0.0f", output.get(), out.bytes / 4), "clear");
    }
    demand(bool(model->run_bound()) && bool(model->bind(out.name, output.get())), "another buffer while the GPU works");
    demand(bool(model->run_bound()), "a run that is not waited for");
    demand(bool(model->reopen(dmlprep::Device::cpu)), "reopen");
    demand(model->bind(in.name, input.get()).code == dmlprep::Code::bad_input, "a buffer for the CPU");
    // The end of a model whose work is not done.
    status = dmlprep::Model::load(".", options, model);
    demand(bool(status), "load again", status);
    demand(bool(model->bind(in.name, input.get())) && bool(model->bind(out.name, output.get())), "bind again");
    demand(bool(model->run_bound()), "run again");
    input.reset();
    output.reset();
    model.reset();
    std::printf("good\n");
    return 0;
}
