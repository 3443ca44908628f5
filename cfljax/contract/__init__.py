"""What every method and every model must keep to: the checks of `cfljax check`, which the tests of
the package make, too."""
