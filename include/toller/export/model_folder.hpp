// SPDX-License-Identifier: Apache-2.0
// T2. Model folders: reading the peers' four kinds, writing two of them.
#pragma once

#include "toller/export/folder_settings.hpp"
#include "toller/export/read_model_folder.hpp"
#include "toller/export/write_model_folder.hpp"
