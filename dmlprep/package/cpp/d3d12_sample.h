// The Direct3D 12 of the sample: a device, a queue, buffers, and shaders before and after the model.
#pragma once

#include "dmlprep_model.h"

#include <d3d12.h>
#include <d3dcompiler.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace d3d12_sample {

template <class Interface>
class Com {
public:
    Com() = default;
    ~Com() { reset(); }
    Com(const Com&) = delete;
    Com& operator=(const Com&) = delete;
    void reset() {
        if (pointer_)
            std::exchange(pointer_, nullptr)->Release();
    }
    Interface* get() const { return pointer_; }
    Interface* operator->() const { return pointer_; }
    Interface** out() {
        reset();
        return &pointer_;
    }
    void** any() { return reinterpret_cast<void**>(out()); }

private:
    Interface* pointer_ = nullptr;
};

inline int failed(const char* what) {
    std::fprintf(stderr, "%s\n", what);
    return 1;
}

// A shader writes words of 32 bits: it has a function "uint word(uint i)" that returns word number i of its buffer, and can
// read the buffer "s". An app has them as files, compiled by fxc when it is built.

// A picture as an app has it on the GPU, and its way into an input of the model.
struct Picture {
    unsigned pixels = 0, channels = 0;
    bool planes = false;        // NCHW: first all red, then all green ...; otherwise NHWC: pixel by pixel
    bool blue_first = false;
    float black = 0, white = 1; // the numbers of the input for bytes of 0 and `bright`
    float bright = 255;
};

inline std::string number(double value) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.9g", value);
    return digits;
}

// The picture that fits an input of float32 or bytes with 1, 3 or 4 channels; false for other inputs.
inline bool picture_of(const dmlprep::TensorInfo& info, Picture& picture) {
    if (info.shape.size() != 4 || info.shape[0] != 1 || info.bytes == 0)
        return false;
    picture.planes = info.layout.empty() ? info.shape[1] <= 4 : info.layout == "NCHW";
    picture.channels = static_cast<unsigned>(info.shape[picture.planes ? 1 : 3]);
    const auto count = static_cast<unsigned>(info.shape[1] * info.shape[2] * info.shape[3]);
    picture.pixels = count / std::max(picture.channels, 1u);
    picture.blue_first = info.colour.rfind("bgr", 0) == 0;
    picture.black = static_cast<float>(info.has_range ? info.low : 0);
    picture.white = static_cast<float>(info.has_range ? info.high : 1);
    const bool counts = picture.channels == 1 || picture.channels == 3 || picture.channels == 4;
    return counts && (info.type == dmlprep::Type::float32 || (info.type == dmlprep::Type::uint8 && info.meaning == "picture"));
}

// Pre-processing on the GPU: from a picture of 4 bytes a pixel (red, green, blue, alpha) to the model's input. An app puts its
// own mean and deviation here.
inline std::string picture_shader(const Picture& picture, dmlprep::Type type) {
    std::string text = "static const uint pixels = " + std::to_string(picture.pixels) +
                       ", channels = " + std::to_string(picture.channels) +
                       ";\nstatic const bool planes = " + (picture.planes ? "true" : "false") +
                       ", blue_first = " + (picture.blue_first ? "true" : "false") +
                       ";\nstatic const float black = " + number(picture.black) +
                       ", span = " + number(picture.white - picture.black) + ", bright = " + number(picture.bright) + ";\n";
    text += R"hlsl(
uint byte_of(uint i) {  // of element i of the input
    uint channel = planes ? i / pixels : i % channels, pixel = planes ? i % pixels : i / channels;
    if (blue_first && channel < 3) channel = 2 - channel;
    return s.Load(pixel * 4) >> (8 * channel) & 255;
}
)hlsl";
    return text + (type == dmlprep::Type::float32
                       ? "uint word(uint i) { return asuint(black + float(byte_of(i)) / bright * span); }"
                       : "uint word(uint i) { i *= 4; return byte_of(i) | byte_of(i + 1) << 8 | byte_of(i + 2) << 16 | "
                         "byte_of(i + 3) << 24; }");
}

// The picture whose input has the numbers of example() in sample.cpp, so that both samples print the same.
inline std::vector<std::uint8_t> example_picture(Picture& picture, dmlprep::Type type) {
    if (type == dmlprep::Type::float32)
        picture.bright = 101;
    std::vector<std::uint8_t> bytes(std::size_t(4) * (picture.pixels + 3), 255);  // the last word of an input can begin 3 later
    for (unsigned i = 0; i < picture.pixels * picture.channels; ++i) {
        unsigned channel = picture.planes ? i / picture.pixels : i % picture.channels;
        const unsigned pixel = picture.planes ? i % picture.pixels : i / picture.channels;
        if (picture.blue_first && channel < 3)
            channel = 2 - channel;
        bytes[4 * pixel + channel] =
            static_cast<std::uint8_t>(type == dmlprep::Type::float32 ? i % 101 * 37 % 101 : i * 2654435761u >> 24);
    }
    return bytes;
}

// For an input that is no picture: a shader that makes the numbers of example(); empty for a type that it has no words for.
inline std::string example_shader(const dmlprep::TensorInfo& info) {
    const double low = info.has_range ? info.low : 0, span = info.has_range ? info.high - info.low : 1;
    const auto whole = [&](const std::string& place) {
        return info.has_range
                   ? "(uint(" + number(low) + ") + ((" + place + ") * 2654435761u >> 24) % uint(" + number(span + 1) + "))"
                   : "((" + place + ") % 2)";
    };
    std::string words;
    switch (info.type) {
    case dmlprep::Type::float32:
        words = "asuint(" + number(low) + " + float(i % 101 * 37 % 101) / 101.0f * " + number(span) + ")";
        break;
    case dmlprep::Type::int32:
    case dmlprep::Type::uint32: words = whole("i"); break;
    case dmlprep::Type::int64:  // the low word, then the sign
    case dmlprep::Type::uint64: words = "i % 2 ? 0u - (" + whole("i / 2") + " >> 31) : " + whole("i / 2"); break;
    case dmlprep::Type::boolean:
    case dmlprep::Type::uint8:
        for (int byte = 0; byte < 4; ++byte)
            words += (byte ? " | " : "") + whole("i * 4 + " + std::to_string(byte)) + " << " + std::to_string(8 * byte);
        break;
    default: return {};
    }
    return "uint word(uint i) { return " + words + "; }";
}

// Post-processing: each number of an output doubled; words of other types as they are.
inline std::string doubled_shader(dmlprep::Type type) {
    return std::string("uint word(uint i) { return ") +
           (type == dmlprep::Type::float32 ? "asuint(asfloat(s.Load(i * 4)) * 2.0f)"
            : type == dmlprep::Type::int32 ? "s.Load(i * 4) * 2"
                                           : "s.Load(i * 4)") +
           "; }";
}

class Gpu {
public:
    Com<ID3D12Device> device;
    Com<ID3D12CommandQueue> queue;

    bool open() {
        D3D12_COMMAND_QUEUE_DESC desc{};
        desc.Type = D3D12_COMMAND_LIST_TYPE_COMPUTE;
        return SUCCEEDED(D3D12CreateDevice(nullptr, D3D_FEATURE_LEVEL_11_0, __uuidof(ID3D12Device), device.any())) &&
               SUCCEEDED(device->CreateCommandQueue(&desc, __uuidof(ID3D12CommandQueue), queue.any())) &&
               SUCCEEDED(device->CreateFence(0, D3D12_FENCE_FLAG_NONE, __uuidof(ID3D12Fence), fence_.any()));
    }

    bool buffer(std::size_t bytes, D3D12_HEAP_TYPE type, Com<ID3D12Resource>& made) const {
        D3D12_HEAP_PROPERTIES heap{};
        heap.Type = type;
        D3D12_RESOURCE_DESC desc{};
        desc.Dimension = D3D12_RESOURCE_DIMENSION_BUFFER;
        desc.Width = bytes;
        desc.Height = desc.DepthOrArraySize = desc.MipLevels = 1;
        desc.SampleDesc.Count = 1;
        desc.Layout = D3D12_TEXTURE_LAYOUT_ROW_MAJOR;
        const bool own = type == D3D12_HEAP_TYPE_DEFAULT;
        desc.Flags = own ? D3D12_RESOURCE_FLAG_ALLOW_UNORDERED_ACCESS : D3D12_RESOURCE_FLAG_NONE;
        const auto state = own                              ? D3D12_RESOURCE_STATE_UNORDERED_ACCESS
                           : type == D3D12_HEAP_TYPE_UPLOAD ? D3D12_RESOURCE_STATE_GENERIC_READ
                                                            : D3D12_RESOURCE_STATE_COPY_DEST;
        return SUCCEEDED(device->CreateCommittedResource(&heap, D3D12_HEAP_FLAG_NONE, &desc, state, nullptr,
                                                         __uuidof(ID3D12Resource), made.any()));
    }

    // Put bytes from the CPU into a buffer: an app does it once, or has its pictures on the GPU already.
    bool upload(const std::vector<std::uint8_t>& bytes, ID3D12Resource* target) {
        Com<ID3D12Resource> copy;
        void* data = nullptr;
        if (!buffer(bytes.size(), D3D12_HEAP_TYPE_UPLOAD, copy) || FAILED(copy->Map(0, nullptr, &data)))
            return false;
        std::memcpy(data, bytes.data(), bytes.size());
        copy->Unmap(0, nullptr);
        return recorded([&](ID3D12GraphicsCommandList* list) {
            moved(list, target, D3D12_RESOURCE_STATE_UNORDERED_ACCESS, D3D12_RESOURCE_STATE_COPY_DEST);
            list->CopyBufferRegion(target, 0, copy.get(), 0, bytes.size());
            moved(list, target, D3D12_RESOURCE_STATE_COPY_DEST, D3D12_RESOURCE_STATE_UNORDERED_ACCESS);
        });
    }

    // Run a shader for all words of a buffer. It can read a source.
    bool dispatch(const std::string& shader, ID3D12Resource* target, std::size_t words, ID3D12Resource* source = nullptr) {
        constexpr std::size_t group = 64, row = 65535;  // threads; groups that a dispatch has at most in one dimension
        const std::string text =
            "RWByteAddressBuffer v : register(u0); ByteAddressBuffer s : register(t0);\n"
            "cbuffer c : register(b0) { uint n; };\n" + shader +
            "\n[numthreads(64, 1, 1)] void main(uint3 id : SV_DispatchThreadID) {\n"
            "uint i = id.y * 4194240 + id.x; if (i < n) v.Store(i * 4, word(i)); }";
        const std::size_t groups = (words + group - 1) / group;
        Com<ID3DBlob> code, errors, signature;
        if (FAILED(D3DCompile(text.data(), text.size(), nullptr, nullptr, nullptr, "main", "cs_5_0", 0, 0, code.out(),
                              errors.out()))) {
            std::fprintf(stderr, "%s\n", errors.get() ? static_cast<const char*>(errors->GetBufferPointer()) : "no shader");
            return false;
        }
        D3D12_ROOT_PARAMETER parameters[3] = {};
        parameters[0].ParameterType = D3D12_ROOT_PARAMETER_TYPE_UAV;
        parameters[1].ParameterType = D3D12_ROOT_PARAMETER_TYPE_32BIT_CONSTANTS;
        parameters[1].Constants.Num32BitValues = 1;
        parameters[2].ParameterType = D3D12_ROOT_PARAMETER_TYPE_SRV;
        const D3D12_ROOT_SIGNATURE_DESC layout = {3, parameters, 0, nullptr, D3D12_ROOT_SIGNATURE_FLAG_NONE};
        Com<ID3D12RootSignature> root;
        Com<ID3D12PipelineState> pipeline;
        if (FAILED(D3D12SerializeRootSignature(&layout, D3D_ROOT_SIGNATURE_VERSION_1, signature.out(), errors.out())) ||
            FAILED(device->CreateRootSignature(0, signature->GetBufferPointer(), signature->GetBufferSize(),
                                               __uuidof(ID3D12RootSignature), root.any())))
            return false;
        D3D12_COMPUTE_PIPELINE_STATE_DESC desc{};
        desc.pRootSignature = root.get();
        desc.CS = {code->GetBufferPointer(), code->GetBufferSize()};
        if (FAILED(device->CreateComputePipelineState(&desc, __uuidof(ID3D12PipelineState), pipeline.any())))
            return false;
        return recorded([&](ID3D12GraphicsCommandList* list) {
            if (source)
                moved(list, source, D3D12_RESOURCE_STATE_UNORDERED_ACCESS, D3D12_RESOURCE_STATE_NON_PIXEL_SHADER_RESOURCE);
            list->SetComputeRootSignature(root.get());
            list->SetPipelineState(pipeline.get());
            list->SetComputeRootUnorderedAccessView(0, target->GetGPUVirtualAddress());
            list->SetComputeRoot32BitConstant(1, static_cast<UINT>(words), 0);
            if (source)
                list->SetComputeRootShaderResourceView(2, source->GetGPUVirtualAddress());
            list->Dispatch(static_cast<UINT>(groups < row ? groups : row), static_cast<UINT>((groups + row - 1) / row), 1);
            D3D12_RESOURCE_BARRIER barrier{};
            barrier.Type = D3D12_RESOURCE_BARRIER_TYPE_UAV;  // what comes next in the queue sees what was written
            barrier.UAV.pResource = target;
            list->ResourceBarrier(1, &barrier);
            if (source)
                moved(list, source, D3D12_RESOURCE_STATE_NON_PIXEL_SHADER_RESOURCE, D3D12_RESOURCE_STATE_UNORDERED_ACCESS);
        });
    }

    // The bytes of a buffer, on the CPU: what an app would do only to print them.
    bool read(ID3D12Resource* source, std::vector<std::uint8_t>& found) {
        const std::size_t bytes = found.size();
        Com<ID3D12Resource> copy;
        if (!buffer(bytes, D3D12_HEAP_TYPE_READBACK, copy))
            return false;
        const bool done = recorded([&](ID3D12GraphicsCommandList* list) {
            moved(list, source, D3D12_RESOURCE_STATE_UNORDERED_ACCESS, D3D12_RESOURCE_STATE_COPY_SOURCE);
            list->CopyBufferRegion(copy.get(), 0, source, 0, bytes);
            moved(list, source, D3D12_RESOURCE_STATE_COPY_SOURCE, D3D12_RESOURCE_STATE_UNORDERED_ACCESS);
        });
        void* data = nullptr;
        if (!done || FAILED(copy->Map(0, nullptr, &data)))
            return false;
        std::memcpy(found.data(), data, bytes);
        copy->Unmap(0, nullptr);
        return true;
    }

private:
    static void moved(ID3D12GraphicsCommandList* list, ID3D12Resource* one, D3D12_RESOURCE_STATES before,
                      D3D12_RESOURCE_STATES after) {
        D3D12_RESOURCE_BARRIER barrier{};
        barrier.Type = D3D12_RESOURCE_BARRIER_TYPE_TRANSITION;
        barrier.Transition = {one, D3D12_RESOURCE_BARRIER_ALL_SUBRESOURCES, before, after};
        list->ResourceBarrier(1, &barrier);
    }

    // Record a list, put it into the queue, wait for it. An app keeps lists and pipelines, and waits once a frame.
    template <class Work>
    bool recorded(Work&& work) {
        Com<ID3D12CommandAllocator> allocator;
        Com<ID3D12GraphicsCommandList> list;
        const auto type = D3D12_COMMAND_LIST_TYPE_COMPUTE;
        if (FAILED(device->CreateCommandAllocator(type, __uuidof(ID3D12CommandAllocator), allocator.any())) ||
            FAILED(device->CreateCommandList(0, type, allocator.get(), nullptr, __uuidof(ID3D12GraphicsCommandList), list.any())))
            return false;
        work(list.get());
        if (FAILED(list->Close()))
            return false;
        ID3D12CommandList* lists[] = {list.get()};
        queue->ExecuteCommandLists(1, lists);
        HANDLE ended = CreateEventW(nullptr, FALSE, FALSE, nullptr);
        const bool waits = ended && SUCCEEDED(queue->Signal(fence_.get(), ++value_)) &&
                           SUCCEEDED(fence_->SetEventOnCompletion(value_, ended));
        if (waits)
            WaitForSingleObject(ended, INFINITE);
        if (ended)
            CloseHandle(ended);
        return waits;
    }

    Com<ID3D12Fence> fence_;
    std::uint64_t value_ = 0;
};

}  // namespace d3d12_sample
