// Inputs for the checks: those of the sample for seed 0, others for other seeds. Of float32 and uint8.
#pragma once

#include "dmlprep_model.h"

#include <algorithm>

inline dmlprep::Tensor fed(const dmlprep::TensorInfo& info, int seed) {
    if (info.type == dmlprep::Type::uint8) {
        std::vector<std::uint8_t> values(info.bytes);
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = static_cast<std::uint8_t>((static_cast<std::uint32_t>(i) * 2654435761u >> 24) + static_cast<unsigned>(seed) * 91);
        return dmlprep::Tensor::from(std::move(values), info.shape);
    }
    std::vector<float> values(info.bytes / sizeof(float));
    for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(1 + seed) * static_cast<float>(i * 37 % 101) / 101;
    return dmlprep::Tensor::from(std::move(values), info.shape);
}

inline dmlprep::Tensors fed(const dmlprep::Model& model, int seed) {
    dmlprep::Tensors all;
    for (const dmlprep::TensorInfo& info : model.inputs())
        all[info.name] = fed(info, seed);
    return all;
}

inline bool same(const dmlprep::Tensors& one, const dmlprep::Tensors& other) {
    return std::equal(one.begin(), one.end(), other.begin(), other.end(), [](const auto& a, const auto& b) {
        const dmlprep::View<std::uint8_t> x = a.second.bytes(), y = b.second.bytes();
        return a.first == b.first && a.second.shape() == b.second.shape() && std::equal(x.begin(), x.end(), y.begin(), y.end());
    });
}
