// SPDX-License-Identifier: Apache-2.0
// T0. Bytes that a rank sends in a step, computed instead of measured.
#pragma once

#include <cstdint>

namespace toller {

/// A step of `Ddp` with `CrossDeviceNegatives`, as a mean over its ranks.
///
/// Units    `queries`, `documents` and their vectors are those of one rank in one step, all micro-batches together; vectors are
///          float32. A dense model has one vector a text, late interaction one a token that it keeps.
struct TrafficInput {
  std::int64_t ranks = 1;
  double gradient_bytes = 0;  ///< of all trained parameters
  double queries = 0;
  double documents = 0;
  double document_vectors = 0;
  double query_vectors = 0;  ///< only `all_queries` needs it
  std::int64_t dimension = 0;
  bool late_interaction = false;   ///< texts of several vectors tell their lengths
  bool all_queries = false;        ///< the loss compares the queries of all ranks too, as a symmetric one does
  std::int64_t micro_batches = 1;  ///< of `Accumulate`; GradCache gathers once
};

/// Bytes that a rank sends in a step, as a mean over the ranks.
struct StepTraffic {
  double gradients = 0;      ///< their sum over the ranks
  double vectors = 0;        ///< documents of this rank, to the others
  double vector_grads = 0;   ///< gradients of the others' documents, back to them
  double numbers = 0;        ///< positives, owners, hashes, lengths
  double announcements = 0;  ///< what each rank is about to send
  double meetings = 0;       ///< a step's beginning and end
  [[nodiscard]] double total() const { return gradients + vectors + vector_grads + numbers + announcements + meetings; }
};

namespace detail {

/// What a rank tells before it gathers, and at a step's beginning and end, to each of the others.
inline constexpr double announcement_bytes = 27 * 8, begin_bytes = 5 * 8, end_bytes = 5 * 8;

}  // namespace detail

/// Bytes that a rank sends in a step, as a mean over the ranks; W ranks, each with B queries, M documents, V vectors of D.
///
///   gradients      2 (W - 1) / W x bytes of the gradients        (a ring: every part goes round twice; at most: `Ddp` leaves
///   out
///                  the rows of large embeddings that no batch touched)
///   vectors        (W - 1) x 4 V D
///   vector_grads   (W - 1) x 4 V D
///   numbers        (W - 1) x 8 (2 B + 2 M + lengths)             (lengths: M for late interaction, else 0)
///   announcements  (W - 1) x 216 for each micro-batch
///   meetings       (W - 1) x 80
///
/// With `all_queries`, V counts the queries' vectors too, and lengths B more. An `all_gather` or `all_to_all` counts what a
/// rank hands to each of the others, whichever way it then takes. A fixed batch per rank makes gathering grow with W; a fixed
/// global batch keeps (W - 1) V nearly constant, and the sum of gradients is what remains.
[[nodiscard]] inline StepTraffic traffic(const TrafficInput& in) {
  const double W = static_cast<double>(in.ranks), others = W - 1;
  const double vectors = in.document_vectors + (in.all_queries ? in.query_vectors : 0);
  const double lengths = in.late_interaction ? in.documents + (in.all_queries ? in.queries : 0) : 0;
  StepTraffic bytes;
  bytes.gradients = 2 * others / W * in.gradient_bytes;
  bytes.vectors = bytes.vector_grads = others * 4 * vectors * static_cast<double>(in.dimension);
  bytes.numbers = others * 8 * (2 * in.queries + 2 * in.documents + lengths);
  bytes.announcements = others * detail::announcement_bytes * static_cast<double>(in.micro_batches);
  bytes.meetings = others * (detail::begin_bytes + detail::end_bytes);
  return bytes;
}

}  // namespace toller
