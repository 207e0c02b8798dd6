"""What runs in AWS beside the nodes: Lambda functions, shipped as they stand here."""
