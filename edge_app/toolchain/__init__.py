"""From a trained model to verified plans: import, quantize, compile, verify. Needs the extra [toolchain]."""
