// Counts what is copied between the CPU and the GPU while a model runs: every copy of every command list of the device whose
// source lies in an UPLOAD heap or whose target lies in a READBACK heap. With bound buffers there must be none; with tensors
// on the CPU there must be one each way at least, or the counting does not work. Prints "good" last.
#if defined(__MINGW32__)
#define WIDL_EXPLICIT_AGGREGATE_RETURNS
#endif
#include "dmlprep_model.h"
#include "d3d12_sample.h"
#include "fed.h"

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
    const auto& ins = model->inputs();
    const auto& outs = model->outputs();

    // With tensors on the CPU, to see that copies are counted.
    dmlprep::Tensors answers;
    const dmlprep::Tensors given = fed(*model, 0);
    reset();
    status = model->run(given, answers);
    demand(bool(status), "run", status);
    std::printf("tensors on the CPU: %d copies, %d up, %d down\n", all.load(), up.load(), down.load());
    demand(lists > 0 && up > 0 && down > 0, "the copies of a run with tensors on the CPU are not seen");

    std::map<std::string, Com<ID3D12Resource>> buffers, pictures, results;
    std::map<std::string, std::string> before;  // the shader of each input
    for (const auto* infos : {&ins, &outs})
        for (const dmlprep::TensorInfo& info : *infos)
            demand(gpu.buffer(info.gpu_bytes, D3D12_HEAP_TYPE_DEFAULT, buffers[info.name]), "buffers");
    for (const dmlprep::TensorInfo& info : outs)
        demand(gpu.buffer(info.gpu_bytes, D3D12_HEAP_TYPE_DEFAULT, results[info.name]), "buffers");
    for (const dmlprep::TensorInfo& info : ins) {
        Picture form;
        demand(picture_of(info, form), "an input that is no picture");
        const std::vector<std::uint8_t> bytes = example_picture(form, info.type);
        before[info.name] = picture_shader(form, info.type);
        reset();
        demand(gpu.buffer(bytes.size(), D3D12_HEAP_TYPE_DEFAULT, pictures[info.name]) &&
                   gpu.upload(bytes, pictures[info.name].get()),
               "the picture");
        demand(up == 1, "the copy of the picture to the GPU is not seen");
    }
    Com<ID3D12Resource> small;
    demand(gpu.buffer(ins.front().gpu_bytes - 4, D3D12_HEAP_TYPE_DEFAULT, small), "a small buffer");
    demand(model->run_bound().code == dmlprep::Code::bad_input, "a run with nothing bound");
    demand(model->bind(ins.front().name, small.get()).code == dmlprep::Code::bad_input, "a buffer that is too small");
    demand(model->bind("nothing", small.get()).code == dmlprep::Code::bad_input, "a name that the model does not have");
    const auto bind = [&](const std::vector<dmlprep::TensorInfo>& infos) {
        for (const dmlprep::TensorInfo& info : infos) {
            status = model->bind(info.name, buffers[info.name].get());
            demand(bool(status), "bind", status);
        }
    };
    bind(ins);
    demand(model->run_bound().code == dmlprep::Code::bad_input, "a run with half of it bound");
    bind(outs);
    for (int round = 0; round < 3; ++round) {
        // Pre-processing, the model and post-processing, as in the sample.
        reset();
        for (const dmlprep::TensorInfo& info : ins)
            demand(gpu.dispatch(before[info.name], buffers[info.name].get(), info.gpu_bytes / 4, pictures[info.name].get()),
                   "the shader before");
        status = model->run_bound();
        demand(bool(status), "run on the GPU", status);
        for (const dmlprep::TensorInfo& info : outs)
            demand(gpu.dispatch(doubled_shader(info.type), results[info.name].get(), info.gpu_bytes / 4, buffers[info.name].get()),
                   "the shader after");
        std::printf("shader, model, shader: %d copies, %d up, %d down\n", all.load(), up.load(), down.load());
        demand(up == 0 && down == 0, "something was copied between CPU and GPU");
        for (const dmlprep::TensorInfo& info : outs) {
            std::vector<std::uint8_t> bytes(info.bytes);
            demand(gpu.read(buffers[info.name].get(), bytes), "read");
            const dmlprep::View<std::uint8_t> expected = answers[info.name].bytes();
            demand(std::equal(bytes.begin(), bytes.end(), expected.begin(), expected.end()), "other numbers than from the CPU");
            demand(gpu.dispatch("uint word(uint i) { return 0; }", buffers[info.name].get(), info.gpu_bytes / 4), "clear");
        }
    }
    demand(bool(model->run_bound()), "a run that is not waited for");
    bind(outs);  // while the GPU works
    demand(bool(model->run_bound()), "another one");
    demand(bool(model->reopen(dmlprep::Device::cpu)), "reopen");
    demand(model->bind(ins.front().name, small.get()).code == dmlprep::Code::bad_input, "a buffer for the CPU");
    // The end of a model whose work is not done.
    status = dmlprep::Model::load(".", options, model);
    demand(bool(status), "load again", status);
    bind(model->inputs());
    bind(model->outputs());
    demand(bool(model->run_bound()), "run again");
    buffers.clear();
    model.reset();
    std::printf("good\n");
    return 0;
}
