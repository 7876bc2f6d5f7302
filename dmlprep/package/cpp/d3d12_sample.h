// What the Direct3D 12 sample needs of Direct3D 12: a device, a queue, buffers, one shader at a time.
#pragma once

#include "dmlprep_model.h"

#include <d3d12.h>
#include <d3dcompiler.h>

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

// Shaders write words of 32 bits: "i" is the place of the word that is computed, "s" is the buffer that is read.

// The words of an input with the numbers of example() in sample.cpp; empty for a type that this sample has no shader for.
inline std::string example_words(const dmlprep::TensorInfo& info) {
    const double low = info.has_range ? info.low : 0, span = info.has_range ? info.high - info.low : 1;
    const auto text = [](double number) {
        char digits[32];
        std::snprintf(digits, sizeof digits, "%.9g", number);
        return std::string(digits);
    };
    const auto whole = [&](const std::string& place) {
        return info.has_range ? "(uint(" + text(low) + ") + ((" + place + ") * 2654435761u >> 24) % uint(" + text(span + 1) + "))"
                              : "((" + place + ") % 2)";
    };
    switch (info.type) {
    case dmlprep::Type::float32: return "asuint(" + text(low) + " + float(i % 101 * 37 % 101) / 101.0f * " + text(span) + ")";
    case dmlprep::Type::int32:
    case dmlprep::Type::uint32: return whole("i");
    case dmlprep::Type::boolean:
    case dmlprep::Type::uint8: {
        std::string words;
        for (int byte = 0; byte < 4; ++byte)
            words += (byte ? " | " : "") + whole("i * 4 + " + std::to_string(byte)) + " << " + std::to_string(8 * byte);
        return words;
    }
    default: return {};
    }
}

// Each number of an output doubled; words of other types as they are.
inline const char* doubled_words(dmlprep::Type type) {
    return type == dmlprep::Type::float32   ? "asuint(asfloat(s.Load(i * 4)) * 2.0f)"
           : type == dmlprep::Type::int32 ? "s.Load(i * 4) * 2"
                                            : "s.Load(i * 4)";
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
        const auto state = own ? D3D12_RESOURCE_STATE_UNORDERED_ACCESS : D3D12_RESOURCE_STATE_COPY_DEST;
        return SUCCEEDED(device->CreateCommittedResource(&heap, D3D12_HEAP_FLAG_NONE, &desc, state, nullptr,
                                                         __uuidof(ID3D12Resource), made.any()));
    }

    // Set each word of a buffer to an expression of its place i and, where there is one, of a source.
    bool dispatch(const std::string& expression, ID3D12Resource* target, std::size_t words, ID3D12Resource* source = nullptr) {
        constexpr std::size_t group = 64, row = 65535;  // threads; groups that a dispatch has at most in one dimension
        const std::string text =
            "RWByteAddressBuffer v : register(u0); ByteAddressBuffer s : register(t0);\n"
            "cbuffer c : register(b0) { uint n; };\n"
            "[numthreads(64, 1, 1)] void main(uint3 id : SV_DispatchThreadID) {\n"
            "uint i = id.y * 4194240 + id.x; if (i < n) v.Store(i * 4, " + expression + "); }";
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
