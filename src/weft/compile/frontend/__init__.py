"""The front end: the public function, its specializations and their guards."""
