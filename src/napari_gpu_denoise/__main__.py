"""``python -m napari_gpu_denoise`` is the command line."""

from napari_gpu_denoise.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
