// SPDX-License-Identifier: Apache-2.0
// The toller program: train, evaluate and use retrievers from the command line.
#include "ranks.hpp"
#include "toller/core/version.hpp"

int main(int argc, char** argv) {
  CLI::App app{"Trains and uses neural retrievers: ColBERT and dense embedders"};
  app.set_version_flag("--version", TOLLER_VERSION);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // what a script presets can be said anew
  app.require_subcommand(1);
  program::add_train(app);
  program::add_evaluate(app);
  program::add_encode(app);
  program::add_tokenize(app);
  program::add_info(app);
  program::add_doctor(app);
  program::add_plan(app);
  try {
    app.parse(argc, argv);
    std::cout.flush();
    if (!std::cout) throw toller::FileError("R136", "standard output: cannot be written");
  } catch (const CLI::Success& success) {  // --help, --version
    app.exit(success);
    return std::cout.flush() ? 0 : 1;
  } catch (const CLI::ParseError& error) {
    std::cerr << "toller: " << toller::Error("R135", error.what()).what() << " (--help says what can be given)" << std::endl;
    return 2;
  } catch (const std::exception& error) {
    program::end_with(error);
  }
}
