// SPDX-License-Identifier: Apache-2.0
#include "toller/pooling/single_vector.hpp"

#include "support/golden.hpp"
#include "support/gradients.hpp"
#include "tokens.hpp"

using namespace toller;

namespace {

/// Output and gradient of a pooling on padded reference data; the texts are the positions `0 .. length`, of which those with
/// mask 0 are not attended.
template <class Pooling>
std::pair<at::Tensor, at::Tensor> pooled(const at::Tensor& hidden, const at::Tensor& mask, const at::Tensor& weight) {
  const at::Tensor leaf_hidden = leaf(hidden, at::kFloat);
  const Embeddings result = Pooling{.normalize = false}.bind(hidden.size(2), 0U).pool(padded_tokens(leaf_hidden, mask));
  (result.values * weight).sum().backward();
  return {result.values.detach(), grad_of(leaf_hidden)};
}

template <class Pooling>
void expect_reference(const std::string& mode, const std::vector<std::string>& cases) {
  const auto tensors = golden_tensors("minilm/pooling_unit.safetensors");
  const at::Tensor hidden = tensors.at("hidden"), right = tensors.at("mask.right");
  for (const std::string& name : cases) {
    at::Tensor mask = tensors.at(name.starts_with("left") ? "mask.left" : "mask.right").clone();
    const bool prompt = name.ends_with("skip_prompt_2");
    if (prompt) {
      for (std::int64_t i = 0; i < mask.size(0); ++i) {
        if (!mask[i].any().item<bool>()) continue;
        const std::int64_t begin = mask[i].argmax().item<std::int64_t>();
        mask[i].slice(0, begin, begin + 2).zero_();
      }
    }
    at::Tensor weight = tensors.at(mode + ".weight").clone();
    if (mode == "max") weight[5].zero_();  // the reference leaves the row without tokens out of its gradient
    const auto [output, grad] = pooled<Pooling>(hidden, mask, weight);
    CAPTURE(mode, name, output, tensors.at(mode + "." + name + ".output"));
    at::Tensor expected = tensors.at(mode + "." + name + ".output").clone(), got = output.clone();
    if (mode == "cls") expected[5].zero_();  // the reference takes position 0 of a row without tokens; here it is zero
    REQUIRE(near(got, expected, 1e-6));
    if (prompt) continue;  // has no gradient in the file
    at::Tensor reference = tensors.at(mode + "." + name + ".grad").clone();
    if (mode == "cls") reference[5].zero_();
    REQUIRE(near(grad, reference, 1e-6));
  }
}

}  // namespace

// Left padding is another layout of the same texts where a pooling counts attended tokens only. It is not for cls (the
// reference takes position 0, a padding) and for weightedmean (it weighs by the padded position): those rows of the file do not
// apply, nor do cls with a prompt left out (the reference still takes the prompt's first token).
TEST_CASE("poolings have the numbers of Sentence Transformers", "[golden]") {
  const std::vector<std::string> all{"right", "left", "right.skip_prompt_2", "left.skip_prompt_2"};
  expect_reference<ClsPooling>("cls", {"right"});
  expect_reference<MeanPooling>("mean", all);
  expect_reference<MaxPooling>("max", all);
  expect_reference<MeanSqrtLengthPooling>("mean_sqrt_len_tokens", all);
  expect_reference<WeightedMeanPooling>("weightedmean", {"right", "right.skip_prompt_2"});
  expect_reference<LastTokenPooling>("lasttoken", all);
}

TEMPLATE_TEST_CASE("one text's vector does not depend on the others, nor on unattended tokens", "[laws]", ClsPooling,
                   MeanPooling, MaxPooling, MeanSqrtLengthPooling, WeightedMeanPooling, LastTokenPooling) {
  at::manual_seed(1);
  const at::Tensor values = at::randn({9, 4});
  const auto pooling = TestType{}.bind(4, 0U);
  const at::Tensor all = pooling.pool(tokens(values, {0, 4, 4, 9})).values;
  REQUIRE(near(all.slice(0, 2, 3), pooling.pool(tokens(values.slice(0, 4, 9), {0, 5})).values, 1e-6));
  REQUIRE(near(all.norm(2, {1}),
               at::tensor(std::vector<double>{1, std::string_view(TestType::name) == "MaxPooling" ? 1. : 0., 1}), 1e-6));
  TokenEmbeddings masked = tokens(values, {0, 4, 4, 9});
  masked.batch.all_attended = false;
  masked.batch.attended[7].fill_(false);
  masked.batch.attended[8].fill_(false);
  const at::Tensor before = pooling.pool(masked).values;
  REQUIRE(near(before.slice(0, 2, 3), pooling.pool(tokens(values.slice(0, 4, 7), {0, 3})).values, 1e-6));
  masked.values = values.clone();
  masked.values[7].fill_(1e30);
  REQUIRE(pooling.pool(masked).values.equal(before));
}

TEST_CASE("the largest value's gradient goes to the lowest of equal tokens") {
  const at::Tensor values = leaf(at::tensor(std::vector<float>{1, 2, 2}).unsqueeze(1), at::kFloat);
  MaxPooling{.normalize = false}.bind(1, 0U).pool(tokens(values, {0, 3})).values.sum().backward();
  REQUIRE(values.grad().squeeze(1).equal(at::tensor(std::vector<float>{0, 1, 0})));
}

TEST_CASE("bf16 tokens are reduced in float32") {
  const at::Tensor values = at::full({1000, 1}, 1.0).to(at::kBFloat16);
  const at::Tensor mean = MeanSqrtLengthPooling{.normalize = false}.bind(1, 0U).pool(tokens(values, {0, 1000})).values;
  REQUIRE(mean.scalar_type() == at::kFloat);
  REQUIRE(near(mean, at::full({1, 1}, std::sqrt(1000.0)), 1e-4));
}

TEST_CASE("a folder's modules come back as they were") {
  at::manual_seed(2);
  const MeanPooling spec{.head = projection_head(6, 3)};
  const auto fresh = spec.bind(6, 42U);
  const FolderModules modules = fresh.modules();
  REQUIRE(modules.size() == 5);
  REQUIRE(modules[0].config.at("pooling_mode_mean_tokens") == true);
  REQUIRE(modules[0].config.at("pooling_mode_cls_token") == false);
  REQUIRE(modules[1].config.at("activation_function") == "torch.nn.modules.activation.ReLU");
  REQUIRE_FALSE(modules[1].config.contains("use_residual"));
  REQUIRE(modules[2].type == "Dropout");
  REQUIRE(modules[4].type == "Normalize");
  const TokenEmbeddings input = tokens(at::randn({5, 6}), {0, 2, 5});
  for (const auto& again : {MeanPooling{}, spec, MeanPooling{.normalize = true}}) {
    const auto loaded = again.bind(6, modules);
    REQUIRE(loaded.pool(input).values.equal(fresh.pool(input).values));
    REQUIRE(loaded.modules().size() == 5);
  }
  REQUIRE_FALSE(MeanPooling{}.bind(6, FolderModules{modules[0]}).modules().back().type == "Normalize");
}

TEST_CASE("a folder of another kind is refused with both named") {
  const FolderModules max = MaxPooling{}.bind(4, 0U).modules(), mean = MeanPooling{}.bind(4, 0U).modules();
  REQUIRE_THROWS_WITH(MeanPooling{}.bind(4, max), "[R320] the folder pools by max_tokens, MeanPooling by mean_tokens");
  REQUIRE_THROWS_WITH(MeanPooling{.normalize = false}.bind(4, mean),
                      "[R322] MeanPooling: normalize is false, in the folder it is not");
  REQUIRE_THROWS_WITH(MeanPooling{}.bind(4, FolderModules{}),
                      "[R803] the folder has no Pooling module, so no MeanPooling: pass .fresh_head = true to start one");
  REQUIRE_THROWS_WITH(MeanPooling{.head = {{.out = 2}}}.bind(4, mean), Catch::Matchers::StartsWith("[R803] "));
  REQUIRE_THROWS_AS(MeanPooling{.head = {{.out = 2}}}.bind(4, mean), FileError);
  REQUIRE_THROWS_WITH(MeanPooling{}.bind(4, FolderModules{mean[0], {"LayerNorm"}}),
                      "[R321] the folder has a LayerNorm module where a Dense one is expected");
  FolderModules both = mean;
  both[0].config["pooling_mode_max_tokens"] = true;
  REQUIRE_THROWS_WITH(MeanPooling{}.bind(4, both),
                      "[R320] the folder pools by max_tokens and mean_tokens, MeanPooling by mean_tokens");
  const FolderModules head = MeanPooling{.head = {{.out = 2}}}.bind(4, 0U).modules();
  REQUIRE_THROWS_WITH(MeanPooling{.head = {{.out = 3}}}.bind(4, head), Catch::Matchers::StartsWith("[R322] "));
}
