// SPDX-License-Identifier: Apache-2.0
// T0. Whose documents are a row's negatives.
#pragma once

namespace toller {

/// The documents of the other rows of the batch, all of which is on one process and in one piece.
struct InBatchNegatives {};

/// The documents of the other rows of all ranks' batches.
struct CrossDeviceNegatives {};

/// The documents that are computed together with the row: this rank's, or this micro-batch's, although the batch is larger.
/// Says that the loss may depend on how the batch is split.
struct LocalNegatives {};

}  // namespace toller
