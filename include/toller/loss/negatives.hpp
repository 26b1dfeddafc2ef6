// SPDX-License-Identifier: Apache-2.0
// T0. Whose documents are a row's negatives.
#pragma once

namespace toller {

/// The documents of the other rows of this rank's batch.
struct InBatchNegatives {};

/// The documents of the other rows of all ranks' batches.
struct CrossDeviceNegatives {};

}  // namespace toller
