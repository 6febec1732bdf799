"""Why a stream cannot be decompressed."""


class CompressionFailed(ValueError):
    """The codec cannot decompress the stream, or the codec does not exist."""


class TooLarge(ValueError):
    """The stream inflates beyond the caller's limit."""


def too_large(limit: int) -> TooLarge:
    return TooLarge(f"the stream inflates to more than {limit} bytes")
