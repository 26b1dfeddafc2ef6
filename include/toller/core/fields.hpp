// SPDX-License-Identifier: Apache-2.0
// T0. Comparing, printing and visiting specs from the one list of fields that each spec writes.
#pragma once

#include <charconv>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace toller {

namespace detail {

struct IgnoreField {
  template <class T>
  void operator()(std::string_view, T&) const {}
};

template <class T>
void print_value(std::ostream& out, const T& value);

}  // namespace detail

/// A spec: an aggregate of hyperparameters with a `name` and one list of its fields.
///
///   struct Cosine {
///     static constexpr std::string_view name = "Cosine";
///     double eps = 1e-12;
///     static void fields(auto& self, auto&& visit) { visit("eps", self.eps); }
///   };
template <class S>
concept Spec = requires(const S& spec) {
  { S::name } -> std::convertible_to<std::string_view>;
  S::fields(spec, detail::IgnoreField{});
};

/// A spec as text: `MeanPooling{normalize=true, truncate_dim=none}`.
template <Spec S>
[[nodiscard]] std::string describe(const S& spec) {
  std::ostringstream out;
  detail::print_value(out, spec);
  return std::move(out).str();
}

/// Whether two specs of one type agree in every field.
template <Spec S>
[[nodiscard]] bool same_spec(const S& a, const S& b) {
  return describe(a) == describe(b);
}

namespace detail {

template <class T>
struct is_optional : std::false_type {};
template <class T>
struct is_optional<std::optional<T>> : std::true_type {};
template <class T>
struct is_vector : std::false_type {};
template <class T>
struct is_vector<std::vector<T>> : std::true_type {};

template <class T>
void print_value(std::ostream& out, const T& value) {
  if constexpr (Spec<T>) {
    out << T::name << '{';
    bool first = true;
    T::fields(value, [&](std::string_view field, const auto& v) {
      out << (first ? "" : ", ") << field << '=';
      print_value(out, v);
      first = false;
    });
    out << '}';
  } else if constexpr (is_optional<T>::value) {
    if (value)
      print_value(out, *value);
    else
      out << "none";
  } else if constexpr (is_vector<T>::value) {
    out << '[';
    for (std::size_t i = 0; i < value.size(); ++i) {
      if (i > 0) out << ", ";
      print_value(out, value[i]);
    }
    out << ']';
  } else if constexpr (std::is_same_v<T, bool>) {
    out << (value ? "true" : "false");
  } else if constexpr (std::is_enum_v<T>) {
    out << +static_cast<std::underlying_type_t<T>>(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    char digits[64];  // the fewest that read back as the same number
    out.write(digits, std::to_chars(digits, digits + sizeof digits, value).ptr - digits);
  } else {
    out << value;
  }
}

}  // namespace detail
}  // namespace toller
