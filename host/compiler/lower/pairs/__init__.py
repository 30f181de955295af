"""Operations on two tensors, element by element."""
