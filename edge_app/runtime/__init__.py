"""Where a model runs: sessions behind one seam, on the CPU, the HTP, or nowhere (null)."""
