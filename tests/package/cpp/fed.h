// Inputs for the checks: those of the sample for seed 0, others for other seeds. Of float32 and uint8.
#pragma once

#include "dmlprep_model.h"

#include <cstring>

inline std::vector<dmlprep::Tensor> fed(const dmlprep::Model& model, int seed) {
    std::vector<dmlprep::Tensor> found;
    for (const dmlprep::TensorInfo& info : model.inputs()) {
        dmlprep::Tensor one{info.name, info.type, info.shape, std::vector<std::uint8_t>(info.bytes)};
        if (info.type == dmlprep::Type::uint8)
            for (std::size_t i = 0; i < info.bytes; ++i)
                one.bytes[i] = static_cast<std::uint8_t>((static_cast<std::uint32_t>(i) * 2654435761u >> 24) + static_cast<unsigned>(seed) * 91);
        else
            for (std::size_t i = 0; i < info.bytes / sizeof(float); ++i) {
                const float value = static_cast<float>(1 + seed) * static_cast<float>(i * 37 % 101) / 101;
                std::memcpy(one.bytes.data() + i * sizeof value, &value, sizeof value);
            }
        found.push_back(std::move(one));
    }
    return found;
}
