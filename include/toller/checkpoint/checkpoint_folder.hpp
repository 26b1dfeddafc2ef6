// SPDX-License-Identifier: Apache-2.0
// T2. A run on disk: the model's own folder, and beside its files the optimizer's state and how far the run is.
#pragma once

#include <c10/core/GradMode.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>

#include "toller/core/error.hpp"
#include "toller/core/values.hpp"
#include "toller/store/atomic_file.hpp"
#include "toller/store/json_file.hpp"
#include "toller/store/safetensors.hpp"
#include "toller/store/write_safetensors.hpp"

namespace toller {

/// Writes a checkpoint: a folder that `from_pretrained` loads, with `training.safetensors` and `training.json` in it.
///
/// `recipe` is the run as text; a run with another recipe refuses to go on from here. Everything else that a step depends on
/// (order, dropout, learning rate) is a function of the recipe and the step's number.
/// Errors   FileError R4xx: what was there before stays.
template <class Model, class OptimizerState>
void save_checkpoint(const std::filesystem::path& dir, std::int64_t step, const std::string& recipe, const Model& model,
                     const OptimizerState& optimizer) {
  const std::filesystem::path part = dir.string() + ".part";
  std::error_code ignored;
  std::filesystem::remove_all(part, ignored);
  try {
    model.save_pretrained(part, {.on_each_node = true});  // whoever is asked to write a checkpoint writes all of it
    NamedTensors state;
    for (const Parameter& p : optimizer.state()) state.emplace_back(p.name, p.value);
    write_safetensors(part / "training.safetensors", state);
    write_file_atomically(part / "training.json", nlohmann::ordered_json{{"step", step}, {"recipe", recipe}}.dump(2) + "\n");
    std::filesystem::remove_all(dir);
    std::filesystem::rename(part, dir);
  } catch (const std::filesystem::filesystem_error& error) {
    std::filesystem::remove_all(part, ignored);
    throw FileError("R461", detail::cat(dir.string(), ": cannot be written: ", error.code().message()));
  } catch (...) {
    std::filesystem::remove_all(part, ignored);
    throw;
  }
}

/// The steps and the recipe that a checkpoint's `training.json` holds.
///
/// Errors   FileError R464: it does not hold them.
struct CheckpointAbout {
  std::int64_t step = 0;
  std::string recipe{};

  [[nodiscard]] static CheckpointAbout read(const std::filesystem::path& checkpoint) {
    const auto path = checkpoint / "training.json";
    const nlohmann::json json = read_json_file(path);
    const bool good = json.is_object() && json.contains("step") && json["step"].is_number_integer() && json["step"] >= 0 &&
                      json.contains("recipe") && json["recipe"].is_string();
    if (!good) throw FileError("R464", detail::cat(path.string(), ": expected a step from 0 on and a recipe"));
    return {json["step"].get<std::int64_t>(), json["recipe"].get<std::string>()};
  }
};

/// The newest checkpoint in a folder, or the folder itself if it is one; nothing if there is none and none is `required`.
///
/// Errors   FileError R462: none, though one is required.
[[nodiscard]] inline std::optional<std::filesystem::path> find_checkpoint(const std::filesystem::path& dir, bool required) {
  namespace fs = std::filesystem;
  if (dir.empty()) return {};
  if (fs::exists(dir / "training.json")) return dir;
  std::optional<fs::path> newest;
  std::int64_t most = -1;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(dir, missing)) {
    if (entry.path().extension() == ".part" || !fs::exists(entry.path() / "training.json")) continue;
    const std::int64_t step = CheckpointAbout::read(entry.path()).step;
    if (step > most) most = step, newest = entry.path();
  }
  if (!newest && required) throw FileError("R462", detail::cat(dir.string(), ": is no checkpoint and holds none"));
  return newest;
}

namespace detail {

/// The first field in which two recipes differ, as `seed=7 now, seed=42 then`.
[[nodiscard]] inline std::string first_difference(std::string now, std::string then) {
  for (std::string* text : {&now, &then})
    for (char& c : *text)
      if (c == ',' || c == '{' || c == '}') c = '\n';
  std::istringstream a(now), b(then);
  std::string field, other;
  while (field == other && (a || b)) {
    field.clear(), other.clear();
    std::getline(a >> std::ws, field), std::getline(b >> std::ws, other);
  }
  return cat(field, " now, ", other, " then");
}

}  // namespace detail

/// Puts the weights and the optimizer's state of a checkpoint into a model and an optimizer of the same kind; gives its step.
///
/// Errors   ConfigError R463: the checkpoint is of another run; the message shows the first line that differs. FileError R4xx.
template <class Model, class OptimizerState>
[[nodiscard]] std::int64_t load_checkpoint(const std::filesystem::path& dir, const std::string& recipe, Model& model,
                                           OptimizerState& optimizer) {
  const auto about = CheckpointAbout::read(dir);
  if (about.recipe != recipe)
    throw ConfigError("R463",
                      detail::cat(dir.string(), ": is of another run: ", detail::first_difference(recipe, about.recipe)));
  const Model saved = Model::from_pretrained(dir);
  const c10::NoGradGuard no_grad;
  const auto copy = [](const Parameters& from, const Parameters& to) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i].value.copy_(from.at(i).value);
  };
  copy(saved.encoder().parameters(), model.encoder().parameters());
  copy(saved.pooling().parameters(), model.pooling().parameters());
  const auto file = SafetensorsFile::open(dir / "training.safetensors");
  Parameters state;
  for (const std::string& name : file.names()) state.push_back({name, file.tensor(name)});
  optimizer.load_state(state);
  return about.step;
}

}  // namespace toller
