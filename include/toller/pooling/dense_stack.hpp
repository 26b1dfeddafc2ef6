// SPDX-License-Identifier: Apache-2.0
// T2. Dense layers with their weights: the heads of every pooling.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "toller/core/check.hpp"
#include "toller/core/dropout.hpp"
#include "toller/core/fields.hpp"
#include "toller/core/values.hpp"
#include "toller/pooling/dense_layer.hpp"
#include "toller/store/model_folder.hpp"

namespace toller {

/// Any number of dense layers, none included. A handle: copies share weights.
///
/// Shapes   [rows, `input_size`] -> [rows, `output_size`].
/// Types    weights are float32; autocast may compute in half types.
class DenseStack {
public:
  /// Fresh weights, uniform in +-1 / sqrt(inputs), from the seed alone.
  ///
  /// Errors   ConfigError R324.
  DenseStack(std::int64_t input, const std::vector<DenseLayer>& specs, std::uint64_t seed);

  /// The weights of `Dense` modules; a `Dropout` module belongs to the layer before it.
  ///
  /// Errors   ConfigError R321 (another module), R323 (a setting or tensor is missing or unknown); ShapeError R301.
  DenseStack(std::int64_t input, const FolderModules& modules);

  /// `row_keys` [rows] say what each row is, for dropout; `dropout_key` empty: no dropout.
  [[nodiscard]] at::Tensor forward(at::Tensor x, const std::optional<std::uint64_t>& dropout_key,
                                   const std::vector<std::uint64_t>& row_keys) const;

  [[nodiscard]] bool has_dropout() const;
  [[nodiscard]] std::int64_t input_size() const { return input_; }
  [[nodiscard]] std::int64_t output_size() const { return layers_.empty() ? input_ : layers_.back().spec.out; }
  [[nodiscard]] std::vector<DenseLayer> specs() const;
  [[nodiscard]] Parameters parameters() const;
  [[nodiscard]] FolderModules modules() const;
  void to(at::Device device);

private:
  struct Layer {
    DenseLayer spec{};
    at::Tensor weight{}, bias{}, residual{};
  };

  std::int64_t input_;
  std::vector<Layer> layers_{};
};

namespace detail {

struct ActivationName {
  DenseActivation activation;
  std::string_view python;
};
inline constexpr ActivationName activation_names[] = {{DenseActivation::identity, "torch.nn.modules.linear.Identity"},
                                                      {DenseActivation::relu, "torch.nn.modules.activation.ReLU"},
                                                      {DenseActivation::gelu, "torch.nn.modules.activation.GELU"},
                                                      {DenseActivation::tanh, "torch.nn.modules.activation.Tanh"},
                                                      {DenseActivation::sigmoid, "torch.nn.modules.activation.Sigmoid"}};

[[nodiscard]] inline at::Tensor apply_activation(const at::Tensor& x, DenseActivation activation) {
  switch (activation) {
    case DenseActivation::relu:
      return x.relu();
    case DenseActivation::gelu:
      return at::gelu(x);
    case DenseActivation::tanh:
      return x.tanh();
    case DenseActivation::sigmoid:
      return x.sigmoid();
    case DenseActivation::identity:
      break;
  }
  return x;
}

/// A setting of a saved module.
template <class T>
[[nodiscard]] T module_setting(const FolderModule& module, const std::string& key) {
  try {
    return module.config.at(key).get<T>();
  } catch (const nlohmann::json::exception&) {
    throw ConfigError("R323",
                      cat("the folder's ", module.type, " module: setting \"", key, "\" is missing or of another type"));
  }
}

[[nodiscard]] inline at::Tensor saved_weight(const FolderModule& module, const std::string& key,
                                             std::initializer_list<std::int64_t> sizes) {
  const auto found = module.tensors.find(key);
  if (found == module.tensors.end())
    throw ConfigError("R323", cat("the folder's ", module.type, " module: tensor \"", key, "\" is missing"));
  expect_shape(cat("the folder's ", module.type, " module: ", key), found->second, sizes);
  return found->second.detach().to(at::kFloat, false, /*copy=*/true).contiguous().requires_grad_(true);
}

}  // namespace detail

inline DenseStack::DenseStack(std::int64_t input, const std::vector<DenseLayer>& specs, std::uint64_t seed) : input_(input) {
  const auto draw = [&](std::initializer_list<std::int64_t> sizes, std::int64_t inputs, std::uint64_t tensor) {
    const double bound = 1 / std::sqrt(static_cast<double>(inputs));
    const at::Tensor weight = at::empty(sizes, at::kFloat);
    weight.uniform_(-bound, bound, at::make_generator<at::CPUGeneratorImpl>(mix_seed(seed, layers_.size(), tensor)));
    return at::Tensor(weight).requires_grad_(true);
  };
  for (const DenseLayer& spec : specs) {
    spec.check();
    const std::int64_t in = output_size();
    Layer layer{spec, draw({spec.out, in}, in, 0), {}, {}};
    if (spec.bias) layer.bias = draw({spec.out}, in, 1);
    if (spec.residual && in != spec.out) layer.residual = draw({spec.out, in}, in, 2);
    layers_.push_back(layer);
  }
}

inline DenseStack::DenseStack(std::int64_t input, const FolderModules& modules) : input_(input) {
  for (const FolderModule& module : modules) {
    if (module.type == "Dropout" && !layers_.empty()) {
      layers_.back().spec.dropout = detail::module_setting<double>(module, "dropout");
      layers_.back().spec.check();
      continue;
    }
    if (module.type != "Dense")
      throw ConfigError("R321", detail::cat("the folder has a ", module.type, " module where a Dense one is expected"));
    const std::int64_t in = output_size();
    Layer layer;
    layer.spec.out = detail::module_setting<std::int64_t>(module, "out_features");
    layer.spec.bias = module.config.contains("bias") ? detail::module_setting<bool>(module, "bias") : true;
    layer.spec.residual = module.config.contains("use_residual") && detail::module_setting<bool>(module, "use_residual");
    const auto python = detail::module_setting<std::string>(module, "activation_function");
    const detail::ActivationName* known = nullptr;
    for (const auto& entry : detail::activation_names)
      if (entry.python == python) known = &entry;
    if (known == nullptr)
      throw ConfigError("R323", detail::cat("the folder's Dense module: activation_function \"", python,
                                            "\" is none of Identity, ReLU, GELU, Tanh, Sigmoid"));
    layer.spec.activation = known->activation;
    layer.spec.check();
    layer.weight = detail::saved_weight(module, "linear.weight", {layer.spec.out, in});
    if (layer.spec.bias) layer.bias = detail::saved_weight(module, "linear.bias", {layer.spec.out});
    if (layer.spec.residual && in != layer.spec.out)
      layer.residual = detail::saved_weight(module, "residual.weight", {layer.spec.out, in});
    layers_.push_back(layer);
  }
}

inline at::Tensor DenseStack::forward(at::Tensor x, const std::optional<std::uint64_t>& dropout_key,
                                      const std::vector<std::uint64_t>& row_keys) const {
  constexpr std::uint64_t first_site = 1U << 20U;  // apart from the sites of any encoder
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    at::Tensor y = detail::apply_activation(at::linear(x, layer.weight, layer.bias), layer.spec.activation);
    if (layer.spec.residual) y = y.add(layer.residual.defined() ? at::linear(x, layer.residual) : x);
    if (dropout_key) y = dropout_rows(y, layer.spec.dropout, *dropout_key, first_site + i, row_keys);
    x = y;
  }
  return x;
}

inline bool DenseStack::has_dropout() const {
  for (const Layer& layer : layers_)
    if (layer.spec.dropout > 0) return true;
  return false;
}

inline std::vector<DenseLayer> DenseStack::specs() const {
  std::vector<DenseLayer> result;
  for (const Layer& layer : layers_) result.push_back(layer.spec);
  return result;
}

inline Parameters DenseStack::parameters() const {
  Parameters result;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const std::string prefix = "head." + std::to_string(i) + ".";
    result.push_back({prefix + "linear.weight", layers_[i].weight});
    if (layers_[i].bias.defined()) result.push_back({prefix + "linear.bias", layers_[i].bias});
    if (layers_[i].residual.defined()) result.push_back({prefix + "residual.weight", layers_[i].residual});
  }
  return result;
}

inline FolderModules DenseStack::modules() const {
  FolderModules result;
  std::int64_t in = input_;
  for (const Layer& layer : layers_) {
    FolderModule module{"Dense", {{"in_features", in}, {"out_features", layer.spec.out}, {"bias", layer.spec.bias}}, {}};
    for (const auto& entry : detail::activation_names)
      if (entry.activation == layer.spec.activation) module.config["activation_function"] = entry.python;
    if (layer.spec.residual) module.config["use_residual"] = true;
    module.tensors["linear.weight"] = layer.weight.detach();
    if (layer.bias.defined()) module.tensors["linear.bias"] = layer.bias.detach();
    if (layer.residual.defined()) module.tensors["residual.weight"] = layer.residual.detach();
    result.push_back(std::move(module));
    if (layer.spec.dropout > 0) result.push_back({"Dropout", {{"dropout", layer.spec.dropout}}, {}});
    in = layer.spec.out;
  }
  return result;
}

inline void DenseStack::to(at::Device device) {
  for (const Parameter& parameter : parameters()) parameter.value.set_data(parameter.value.detach().to(device));
}

}  // namespace toller
