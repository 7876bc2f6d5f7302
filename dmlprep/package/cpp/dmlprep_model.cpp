// See dmlprep_model.h. Compile with dmlprep_model_contract.cpp and dmlprep_model_runtime.cpp; link with dxgi and bcrypt.
#include "dmlprep_model_parts.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <new>
#include <optional>
#include <set>
#include <system_error>

namespace dmlprep {

using namespace detail;

namespace {

constexpr int contract_format = 1;

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

    std::string evidence;

    OrtSession** out() { return session_.out(); }
    OrtSession* session() const { return session_.get(); }

    // Waits for the GPU, which may still work on the buffers of the last run.
    void settle() {
        if (in_flight_ && binding_)
            if (OrtStatus* status = api->SynchronizeBoundOutputs(binding_->get()))
                api->ReleaseStatus(status);  // a removed GPU has no work
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
    // Buffers are released before their session: members go from the last to the first.
    Owned<OrtSession> session_;
    std::map<std::string, std::unique_ptr<Bound>> bound_;
    std::optional<Owned<OrtIoBinding>> binding_;
    bool in_flight_ = false;
};

// The values of a run, which outputs keep.
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

Tensor output_of(const TensorInfo& info, const std::shared_ptr<Values>& values, OrtValue* value) {
    Owned<OrtTensorTypeAndShapeInfo> facts(api->ReleaseTensorTypeAndShapeInfo);
    check(api->GetTensorTypeAndShape(value, facts.out()));
    std::size_t rank = 0, count = 0;
    check(api->GetDimensionsCount(facts.get(), &rank));
    check(api->GetTensorShapeElementCount(facts.get(), &count));
    Shape shape(rank);
    check(api->GetDimensions(facts.get(), shape.data(), rank));
    void* data = nullptr;
    check(api->GetTensorMutableData(value, &data));
    return Tensor(info.type, std::move(shape), values, data, count * size_of(info.type));
}

bool older(const std::string& version, const std::string& least) {
    unsigned have[2] = {}, want[2] = {};
    std::sscanf(version.c_str(), "%u.%u", &have[0], &have[1]);
    std::sscanf(least.c_str(), "%u.%u", &want[0], &want[1]);
    return std::lexicographical_compare(have, have + 2, want, want + 2);
}

}  // namespace

struct Model::Inner {
    std::filesystem::path folder;
    Options options;
    Json contract;
    std::mutex runs;  // runs of one model take turns, because DirectML forbids two on one session
    std::map<std::string, std::unique_ptr<Loaded>> sessions;  // by bucket; "" in a package without buckets
    std::optional<Status> lost;
    Device asked = Device::dml;
    std::string device, evidence, notice;

    using Files = std::map<std::string, std::vector<std::uint8_t>>;

    // The contract, or one of its buckets.
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

    [[noreturn]] void missing(const std::string& name) const {
        damaged(name, "is missing" + (options.read ? "" : " in " + narrow(std::filesystem::absolute(folder).c_str())));
    }

    std::vector<std::uint8_t> needed(const std::string& name) const {
        std::vector<std::uint8_t> bytes;
        if (!read_file(name, bytes))
            missing(name);
        return bytes;
    }

    void read_contract() {
        const std::vector<std::uint8_t> raw = needed(contract_name), digest = needed(digest_name);
        Sha256 hash;
        hash.add(raw.data(), raw.size());
        if (std::string(digest.begin(), digest.end()) != hash.hex() + "  " + contract_name + "\n")
            damaged(contract_name, std::string("does not match ") + digest_name);
        contract = parse_json(std::string(raw.begin(), raw.end()));
        if (contract["format"].value != contract_format)
            damaged(contract_name, "has a format that this loader does not read");
        now = wanted(options.sizes);
    }

    const std::vector<Json>& buckets() const { return contract.or_null("buckets").items; }

    // The model of the package; of its buckets the one for these sizes, the first one without any.
    Chosen wanted(const Sizes& sizes) const {
        Chosen chosen;
        chosen.part = &contract;
        chosen.free = sizes;
        if (!buckets().empty()) {
            Sizes own;
            for (const auto& [name, size] : buckets().front()["sizes"].members)
                if (auto one = chosen.free.extract(name); !one.empty())
                    own.insert(std::move(one));
            if (own.empty())
                for (const auto& [name, size] : buckets().front()["sizes"].members)
                    own[name] = static_cast<std::int64_t>(size.value);
            chosen.part = &detail::choose(buckets(), own, chosen.choice);
        }
        for (const Json& one : (*chosen.part)["inputs"].items)
            chosen.inputs.push_back(tensor_info(one));
        for (const Json& one : (*chosen.part)["outputs"].items)
            chosen.outputs.push_back(tensor_info(one));
        return chosen;
    }

    void take(const Sizes& sizes) {
        const std::lock_guard<std::mutex> alone(runs);
        if (buckets().empty())
            no_buckets();
        Chosen before = wanted(sizes);
        demand_open();
        std::swap(now, before);
        try {
            if (!sessions.count(now.choice.bucket))
                open_on(device);
        } catch (...) {
            std::swap(now, before);
            throw;
        }
        evidence = loaded().evidence;
    }

    void close() {
        const std::lock_guard<std::mutex> closing(session_lock());
        sessions.clear();
    }

    void demand_open() const {
        if (lost)
            throw Error(*lost);
        if (sessions.empty())
            fail(Code::failed, "the model is closed: call reopen()");
    }

    Loaded& loaded() { return *sessions.at(now.choice.bucket); }

    // The files are as in the contract. Returns the bytes of those from which the session is made in memory.
    Files checked(const Json& model) const {
        Files kept;
        for (const auto& [name, entry] : contract["files"].members) {
            bool data = false;
            for (const Json& one : model["data"].items)
                data = data || one.string == name;
            const bool is_wanted = data || name == model["file"].string;
            std::error_code ignored;
            if (!is_wanted && (options.read || !std::filesystem::is_regular_file(folder / wide(name), ignored)))
                continue;  // such as sources and the README, which an app need not ship
            check_file(name, entry, is_wanted && !(data && !options.read), kept);
        }
        return kept;
    }

    void check_file(const std::string& name, const Json& entry, bool keep, Files& kept) const {
        Sha256 hash;
        std::uint64_t size = 0;
        if (keep || options.read) {
            std::vector<std::uint8_t> raw = needed(name);
            size = raw.size();
            hash.add(raw.data(), raw.size());
            if (keep)
                kept[name] = std::move(raw);
        } else {
            std::ifstream file(folder / wide(name), std::ios::binary);
            if (!file)
                missing(name);
            std::vector<char> piece(std::size_t(1) << 20);
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

    // Tries what was asked for in its order: a vendor's provider, DirectML, the CPU.
    void open(Device where) {
        std::unique_lock<std::mutex> alone(runs);
        close();
        lost.reset();
        for (std::string* one : {&device, &evidence, &notice})
            one->clear();
        asked = where;
        const bool vendor = options.prefer != Prefer::none && where != Device::cpu;
        if (vendor && options.d3d12_device)
            fail(Code::bad_input, "a vendor's provider cannot use d3d12_device: set only one of prefer and d3d12_device");
        const bool opened = (vendor && tried("vendor", "no vendor's provider runs the model: ")) ||
                            (where == Device::dml_or_cpu && tried("dml", "DirectML is not available: "));
        if (!opened)
            open_on(where == Device::dml ? "dml" : "cpu");
        evidence = loaded().evidence;
        if (notice.empty())
            return;
        notice += device == "cpu" ? "; the model runs on the CPU, which is slower" : "; the model runs on DirectML";
        const std::string text = notice;
        alone.unlock();  // the app's function may use the model
        if (options.log)
            options.log(text);
        else
            std::fprintf(stderr, "dmlprep: %s\n", text.c_str());
    }

    // Opens the session there, or adds the reason why not to `notice`. Throws if the package is the reason.
    bool tried(const std::string& where, const std::string& what) {
        try {
            open_on(where);
            return true;
        } catch (const Error& error) {
            if (error.status.code == Code::package_damaged || error.status.code == Code::bad_input)
                throw;
            notice += (notice.empty() ? "" : "; ") + what + error.what();
            return false;
        }
    }

    // `where` is dml, cpu, or vendor or the name of its provider.
    void open_on(const std::string& where) {
        sessions[now.choice.bucket] = create(where);
        try {
            warm_up();
        } catch (...) {
            const std::lock_guard<std::mutex> closing(session_lock());
            sessions.erase(now.choice.bucket);
            throw;
        }
    }

    std::unique_ptr<Loaded> create(const std::string& where) {
        const bool vendor = where != "dml" && where != "cpu";
        const Json& original = contract.or_null("original");
        const bool is_original = vendor && original.kind == Json::object;
        const Json& model = is_original ? original : (*now.part)["model"];
        std::string provider = where == "cpu" ? "CPUExecutionProvider" : "DmlExecutionProvider";
        OrtEnv* env = nullptr;
        const OrtEpDevice* vendor_own = nullptr;
        {
            const std::lock_guard<std::mutex> creating(session_lock());
            env = environment(options.runtime);
            if (vendor)
                vendor_own = vendor_device(env, options, provider);
        }
        const std::string& least = (*now.part)["target"]["lowest_onnxruntime"].string;
        if (older(runtime_version, least))
            fail(Code::runtime_missing, "onnxruntime.dll is " + runtime_version + ", older than " + least +
                                            ", the oldest version for this model");
        const Files files = checked(model);
        const std::lock_guard<std::mutex> creating(session_lock());
        Owned<OrtSessionOptions> settings(api->ReleaseSessionOptions);
        check(api->CreateSessionOptions(settings.out()));
        check(api->SetSessionExecutionMode(settings.get(), ORT_SEQUENTIAL));
        check(api->SetSessionLogSeverityLevel(settings.get(), ORT_LOGGING_LEVEL_ERROR));
        record_nodes(settings.get());
        if (vendor)
            append_vendor(env, settings.get(), vendor_own);
        else if (where == "dml")
            append_directml(settings.get(), options);
        if (is_original)
            for (const auto& [name, size] : contract["fixed"].members)
                check(api->AddFreeDimensionOverrideByName(settings.get(), name.c_str(), static_cast<std::int64_t>(size.value)));
        fix_sizes(settings.get());
        auto made = std::make_unique<Loaded>();
        const std::string& file = model["file"].string;
        if (!options.read && !model["data"].items.empty()) {
            check(api->CreateSession(env, (folder / wide(file)).c_str(), settings.get(), made->out()));
        } else {
            add_data(settings.get(), model["data"].items, files);
            const std::vector<std::uint8_t>& raw = files.at(file);
            check(api->CreateSessionFromArray(env, raw.data(), raw.size(), settings.get(), made->out()));
        }
        made->evidence = nodes_of(made->session(), provider);
        device = vendor ? provider : where;
        return made;
    }

    std::string free_dimensions() const {
        std::set<std::string> names;
        for (const auto& [name, size] : now.choice.sizes)
            names.insert(name);
        for (const TensorInfo& one : now.inputs)
            names.insert(one.free_names.begin(), one.free_names.end());
        for (const Json& one : contract["denotations"].items)
            names.insert(one.string);
        names.erase("");
        return names.empty() ? "none" : listed(names);
    }

    void fix_sizes(OrtSessionOptions* settings) const {
        for (const auto& [name, size] : now.free) {
            bool by_name = false, by_denotation = false;
            for (const TensorInfo& one : now.inputs)
                by_name = by_name || std::count(one.free_names.begin(), one.free_names.end(), name) > 0;
            for (const Json& one : contract["denotations"].items)
                by_denotation = by_denotation || one.string == name;
            if (!by_name && !by_denotation)
                fail(Code::bad_input, "the model has no free dimension '" + name + "'; there are: " + free_dimensions());
            check(by_name ? api->AddFreeDimensionOverrideByName(settings, name.c_str(), size)
                          : api->AddFreeDimensionOverride(settings, name.c_str(), size));
        }
    }

    static void add_data(OrtSessionOptions* settings, const std::vector<Json>& data, const Files& files) {
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

    Shape shape_of(const TensorInfo& info) const {
        Shape shape = info.shape;
        for (std::size_t axis = 0; axis < shape.size(); ++axis)
            if (const auto one = now.free.find(info.free_names[axis]); shape[axis] < 0 && one != now.free.end())
                shape[axis] = one->second;
        return shape;
    }

    // Runs with zeros, if all sizes are known: the first run compiles shaders.
    void warm_up() {
        Tensors zeros, ignored;
        for (const TensorInfo& info : now.inputs) {
            std::size_t bytes = size_of(info.type);
            for (std::int64_t size : shape_of(info)) {
                if (size < 0)
                    return;
                bytes *= static_cast<std::size_t>(size);
            }
            const auto owner = std::make_shared<const std::vector<std::uint8_t>>(bytes);
            zeros[info.name] = Tensor(info.type, shape_of(info), owner, owner->data(), bytes);
        }
        if (options.warm_up)
            run_now(zeros, ignored);
    }

    const Tensor& fitting(const TensorInfo& info, const Tensors& all) const {
        const auto one = all.find(info.name);
        if (one == all.end())
            fail(Code::bad_input, "input '" + info.name + "' is missing");
        const Tensor& tensor = one->second;
        const Shape shape = shape_of(info);
        bool fits = tensor.shape().size() == shape.size();
        std::size_t bytes = size_of(tensor.type());
        for (std::size_t axis = 0; fits && axis < shape.size(); ++axis) {
            fits = tensor.shape()[axis] >= 0 && (shape[axis] < 0 || shape[axis] == tensor.shape()[axis]);
            bytes *= static_cast<std::size_t>(tensor.shape()[axis]);
        }
        const std::string start = "input '" + info.name + "' ";
        if (!fits)
            fail(Code::bad_input, start + "is " + shape_text(tensor.shape()) + ", but the model needs " + shape_text(shape) +
                                      (now.choice.bucket.empty() ? std::string()
                                                                 : "; the bucket " + now.choice.bucket +
                                                                       " has fixed sizes: pad the input"));
        if (tensor.type() != info.type)
            fail(Code::bad_input, start + "is " + (tensor.type() == Type::none ? "empty" : row_of(tensor.type()).name) +
                                      ", but the model needs " + row_of(info.type).name);
        if (tensor.bytes().size() != bytes)
            fail(Code::bad_input, start + "has " + std::to_string(tensor.bytes().size() / size_of(info.type)) +
                                      " elements, but " + shape_text(tensor.shape()) + " needs " +
                                      std::to_string(bytes / size_of(info.type)));
        return tensor;
    }

    template <class Work>
    void alone_with_session(Work&& work) {
        const std::lock_guard<std::mutex> alone(runs);
        demand_open();
        try {
            work();
        } catch (const Error& error) {
            if (error.status.code == Code::device_removed || error.status.code == Code::out_of_memory) {
                lost = error.status;
                close();
            }
            throw;
        }
    }

    void bind(const std::string& name, ID3D12Resource* buffer) {
        if (device != "dml" || !options.d3d12_queue)
            fail(Code::bad_input, "bind() needs a model on a device of the app: Options::d3d12_device");
        if (!buffer)
            fail(Code::bad_input, "the buffer for '" + name + "' is null");
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

    void run_now(const Tensors& all, Tensors& outputs) {
        std::vector<std::string> names;
        for (const TensorInfo& info : now.inputs)
            names.push_back(info.name);
        for (const auto& [name, tensor] : all)
            if (!std::count(names.begin(), names.end(), name))
                fail(Code::bad_input, "the model has no input '" + name + "'; it has: " + listed(names));
        Owned<OrtMemoryInfo> memory(api->ReleaseMemoryInfo);
        check(api->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, memory.out()));
        Values fed(now.inputs.size());
        const auto made = std::make_shared<Values>(now.outputs.size());
        std::vector<const char*> input_names, output_names;
        for (std::size_t i = 0; i < now.inputs.size(); ++i) {
            const Tensor& one = fitting(now.inputs[i], all);
            input_names.push_back(now.inputs[i].name.c_str());
            check(api->CreateTensorWithDataAsOrtValue(memory.get(), const_cast<std::uint8_t*>(one.bytes().data()),
                                                      one.bytes().size(), one.shape().data(), one.shape().size(),
                                                      row_of(one.type()).element, &fed.all[i]));
        }
        for (const TensorInfo& info : now.outputs)
            output_names.push_back(info.name.c_str());
        check(api->Run(loaded().session(), nullptr, input_names.data(), fed.all.data(), fed.all.size(), output_names.data(),
                       output_names.size(), made->all.data()));
        Tensors answers;
        for (std::size_t i = 0; i < now.outputs.size(); ++i)
            answers[now.outputs[i].name] = output_of(now.outputs[i], made, made->all[i]);
        outputs = std::move(answers);
    }
};

Model::Model(std::unique_ptr<Inner> inner) noexcept : inner_(std::move(inner)) {}

Model::~Model() { inner_->close(); }

Status Model::load(const std::filesystem::path& folder, const Options& options, std::unique_ptr<Model>& model) noexcept {
    return guarded([&] {
        std::unique_ptr<Model> made(new Model(std::make_unique<Inner>()));
        Inner& inner = *made->inner_;
        inner.folder = folder.empty() ? own_folder() : folder;
        inner.options = options;
        inner.read_contract();
        inner.open(options.device);
        model = std::move(made);
    });
}

Status Model::run(const Tensors& inputs, Tensors& outputs) noexcept {
    return guarded([&] { inner_->alone_with_session([&] { inner_->run_now(inputs, outputs); }); });
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

Status Model::reopen() noexcept { return reopen(asked()); }

Status Model::choose(const Sizes& sizes, Choice& choice) const noexcept {
    return guarded([&] { detail::choose(inner_->buckets(), sizes, choice); });
}

Status Model::take(const Sizes& sizes) noexcept {
    return guarded([&] { inner_->take(sizes); });
}

const std::string& Model::bucket() const noexcept { return inner_->now.choice.bucket; }

const Sizes& Model::padding() const noexcept { return inner_->now.choice.padding; }

const std::vector<TensorInfo>& Model::inputs() const noexcept { return inner_->now.inputs; }

const std::vector<TensorInfo>& Model::outputs() const noexcept { return inner_->now.outputs; }

Device Model::asked() const noexcept { return inner_->asked; }

const std::string& Model::device() const noexcept { return inner_->device; }

const std::string& Model::evidence() const noexcept { return inner_->evidence; }

const std::string& Model::notice() const noexcept { return inner_->notice; }

}  // namespace dmlprep
