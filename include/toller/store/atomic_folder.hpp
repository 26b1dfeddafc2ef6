// SPDX-License-Identifier: Apache-2.0
// T0. A folder that is whole or is not there: written beside its place, flushed to disk, then swapped in.
#pragma once

#include <fcntl.h>
#include <stdio.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "toller/core/error.hpp"
#include "toller/store/atomic_file.hpp"

namespace toller {

/// A folder in the making: fill `path()`, then `commit()`. Without it, nothing of it remains and the old folder stays.
///
/// Errors   FileError R420: not writable, disk full, or a file is in the place. R421: the new folder is in place, but what was
///          kept of the old one could not be moved back (names where it lies).
class AtomicFolder {
public:
  explicit AtomicFolder(const std::filesystem::path& target)
      : target_(detail::prepared_target(target)), part_(detail::beside(target_, "part")) {
    std::error_code error;
    if (std::filesystem::exists(target_, error) && !std::filesystem::is_directory(target_, error))
      detail::fail_to_write(target_, "a file of that name is in the place of the folder");
    detail::remove_leftovers(target_, "part");
    if (!std::filesystem::create_directory(part_, error))
      detail::fail_to_write(target_, error ? error.message() : std::string("its temporary folder is in use"));
  }
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;
  ~AtomicFolder() {
    std::error_code ignored;
    if (!part_.empty()) std::filesystem::remove_all(part_, ignored);
  }

  /// Where to write.
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return part_; }

  /// Puts the folder in its place. Entries of an old folder for which `replaces(name)` is false move over into the new one;
  /// the others, and those that the new folder has too, go.
  void commit(const std::function<bool(const std::string&)>& replaces) {
    flush_all();
    if (!std::filesystem::exists(target_)) {
      if (::rename(part_.c_str(), target_.c_str()) != 0) detail::fail_to_write(target_, std::strerror(errno));
    } else {
      swap_in();
      keep_entries(replaces);
      std::error_code ignored;
      std::filesystem::remove_all(part_, ignored);
    }
    part_.clear();
    detail::flush_to_disk(target_.parent_path());
  }

private:
  void flush_all() const {
    std::error_code error;
    for (std::filesystem::recursive_directory_iterator entry(part_, error), end; !error && entry != end; entry.increment(error))
      if (const int number = detail::flush_to_disk(entry->path()); number != 0)
        detail::fail_to_write(target_, std::strerror(number));
    if (error) detail::fail_to_write(target_, error.message());
    detail::flush_to_disk(part_);
  }

  /// After this the new folder is in place and the old one lies at `part_`.
  void swap_in() const {
    if (::renameat2(AT_FDCWD, part_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) == 0) return;
    if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) detail::fail_to_write(target_, std::strerror(errno));
    const auto old = detail::beside(target_, "old");  // a file system that cannot exchange: two steps
    if (::rename(target_.c_str(), old.c_str()) != 0) detail::fail_to_write(target_, std::strerror(errno));
    if (::rename(part_.c_str(), target_.c_str()) != 0) {
      const int error = errno;
      ::rename(old.c_str(), target_.c_str());
      detail::fail_to_write(target_, std::strerror(error));
    }
    ::rename(old.c_str(), part_.c_str());
  }

  void keep_entries(const std::function<bool(const std::string&)>& replaces) {
    std::vector<std::filesystem::path> kept;
    for (const auto& entry : std::filesystem::directory_iterator(part_)) {
      const auto name = entry.path().filename();
      if (!std::filesystem::exists(target_ / name) && !replaces(name.string())) kept.push_back(name);
    }
    for (const auto& name : kept)
      if (::rename((part_ / name).c_str(), (target_ / name).c_str()) != 0) {
        const int error = errno;
        const auto left = std::exchange(part_, {});  // never remove what could not be moved
        throw FileError("R421", detail::cat("wrote ", target_.string(), ", but could not move ", name.string(),
                                            " of the old folder back from ", left.string(), ": ", std::strerror(error)));
      }
  }

  std::filesystem::path target_;
  std::filesystem::path part_;
};

}  // namespace toller
