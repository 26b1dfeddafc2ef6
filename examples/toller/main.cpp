// SPDX-License-Identifier: Apache-2.0
// The toller program: train, evaluate and use retrievers from the command line.
#include "common.hpp"
#include "toller/core/version.hpp"

int main(int argc, char** argv) {
  CLI::App app{"Trains and uses neural retrievers: ColBERT and dense embedders"};
  app.set_version_flag("--version", TOLLER_VERSION);
  app.require_subcommand(1);
  program::add_train(app);
  program::add_evaluate(app);
  program::add_encode(app);
  program::add_tokenize(app);
  program::add_info(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const toller::Error& error) {
    std::cerr << "toller: " << error.what() << std::endl;
    return 1;
  } catch (const std::exception& error) {
    const std::string message = error.what();
    std::cerr << "toller: " << message.substr(0, message.find('\n')) << std::endl;
    return 1;
  }
}
